"""The laboratory: data, tasks, runs, comparisons, reports, the web page, commands and labs.

It needs the extra ``lab``. Without it, every import from here raises an `ImportError` that says so.
"""

from importlib.util import find_spec

#: Modules of the packages that the extra installs.
NEEDED = (
    "babel", "fastapi", "h11", "jinja2", "markdown_it", "markupsafe", "matplotlib", "narwhals",
    "optuna", "pooch", "prometheus_client", "requests", "rich", "sacrebleu", "scipy", "sklearn",
    "starlette", "tokenizers", "tomli_w", "typer", "uvicorn",
)  # fmt: skip

if _missing := [name for name in NEEDED if find_spec(name) is None]:
    raise ImportError(
        f"regard's laboratory needs {', '.join(_missing)}: pip install 'regard[lab]', or "
        "pip install -c constraints.txt '.[lab]' in a checkout"
    )
