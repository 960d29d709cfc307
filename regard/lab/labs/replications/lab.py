"""Do published findings about attention hold in small models, over several seeds?

``only=NAME`` runs one of them; ``size=full`` has the seeds and steps of
docs/results/replications.md.
"""

from pathlib import Path

from regard.lab.labs.collection import CollectionLab
from regard.lab.labs.replications import findings, letters
from regard.lab.labs.replications.outcomes import summary

LAB = CollectionLab(
    members=(*findings.MEMBERS, *letters.MEMBERS),
    page=Path(__file__).with_suffix(".md"),
    findings=summary,
)
