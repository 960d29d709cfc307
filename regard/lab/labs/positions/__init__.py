"""The lab positions: the information that each kind of position gives a model."""
