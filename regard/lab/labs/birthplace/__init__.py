"""The birthplace lab: the knowledge a model gains in pretraining, and its calibration."""
