"""regard train examples/my_task.py:focal --data reviews.csv
regard compare examples/my_task.py:focal --data reviews.csv --arms tfidf,transformer"""

from dataclasses import replace

from torch.nn.functional import cross_entropy

from regard.lab.tasks import TASKS
from regard.lab.tasks.classification.task import Classification
from regard.lab.tasks.texts import outputs_of


class Focal(Classification):  # −(1 − p)² ln p of the true label p: Lin et al. 2017, equation 4
    def loss(self, model, batch):
        logits = outputs_of(model, batch.tokens, batch.lengths, batch.parents).float()
        nats = cross_entropy(logits, batch.labels, reduction="none")
        return ((1 - (-nats).exp()) ** 2 * nats).mean()


text = "predict the label of a text, trained with the focal loss"
focal = replace(TASKS["classification"], name="focal", description=text, task=f"{__file__}:Focal")
