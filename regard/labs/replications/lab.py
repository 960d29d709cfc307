"""Do published findings about attention hold in small models, over several seeds?

``only=NAME`` runs one of them; ``size=full`` has the seeds and steps of
docs/results/replications.md.
"""

from regard.labs.collection import CollectionLab
from regard.labs.replications.findings import MEMBERS
from regard.labs.replications.outcomes import COLUMNS, summary

LAB = CollectionLab(
    members=MEMBERS,
    title="Published findings and their reruns",
    columns=COLUMNS,
    answer=summary,
    next="regard lab replications size=full only=recall",
)
