"""regard train classification --model mean track=examples/my_tracker.py:Lines"""

from regard.lab.runs import Tracker


class Lines(Tracker):  # one line for each step, in the run's folder
    def __init__(self, folder, config, step):
        self.file = (folder / "steps.txt").open("a")

    def add(self, step, numbers):
        self.file.write(f"{step}: loss {numbers['loss']:.3f}\n")

    def close(self, complete):
        self.file.close()
