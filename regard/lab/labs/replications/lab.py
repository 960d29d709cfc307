"""Do published findings about attention hold in small models, over several seeds?

``only=NAME`` runs one of them; ``size=full`` has the seeds and steps of
docs/results/replications.md.
"""

from regard.lab.labs.collection import CollectionLab
from regard.lab.labs.replications.findings import MEMBERS
from regard.lab.labs.replications.outcomes import COLUMNS, summary
from regard.lab.reports.findings import Table

LAB = CollectionLab(
    members=MEMBERS,
    summary=lambda rows: Table("Published findings and their reruns", COLUMNS, rows),
    answer=summary,
    about=[
        "A rerun agrees or disagrees if the paired difference of its seeds, or the 95 % interval "
        "of a score, says so (α = 5 %, Holm within a comparison), with two seeds or more. An arm "
        "that was still rising counts as worse only if as many steps again, at the slope of its "
        "last half, would close less than a tenth of the difference. Findings about language "
        "models are about equal steps.",
    ],
    next="regard lab replications size=full only=recall",
)
