"""Plugins: objects in a user's own files, named ``FILE.py:Name``."""

import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FunctionType, ModuleType

from regard.core.errors import RegardError, look_up
from regard.core.names import files_of, located


def load_object(spec: str) -> object:
    """Return the object named by ``FILE.py:Name``; the file is executed like an import.

    `regard.core.tables.load` runs only trusted files. Raises: a malformed spec; a missing file or
    name; a file that does not run.
    """
    file, name = located(spec)
    if not name or not file.endswith(".py"):
        raise RegardError(f"name your own part as FILE.py:Name, not {spec!r}")
    module = load_module(Path(file))
    if name in vars(module):
        return vars(module)[name]
    own = {key: value for key, value in vars(module).items() if _is_own(value, module.__name__)}
    if not own:
        raise RegardError(f"{file} defines no {name}: it defines no class or function at all")
    return look_up(own, name, f"part of {file}")


def _is_own(value: object, module: str) -> bool:
    """Return whether a value is defined in this module, or is an object of a regard class."""
    if isinstance(value, type | FunctionType):
        return getattr(value, "__module__", "") == module
    return type(value).__module__.partition(".")[0] in (module, "regard")


def load_module(path: Path) -> ModuleType:
    """Return the module of a file; the same object while its content is unchanged.

    The file can import others in its folder.
    """
    try:
        source = path.read_bytes()
    except OSError as error:
        raise RegardError(f"{path} cannot be read: {error.strerror}") from None
    digest = hashlib.sha256(path.resolve().as_posix().encode() + source).hexdigest()
    name = f"regard_part_{path.stem}_{digest[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    module = ModuleType(name)
    module.__file__ = str(path)
    folder = str(path.resolve().parent)
    sys.modules[name] = module
    sys.path.append(folder)
    try:
        # Compiled here, since a cached .pyc file may be stale within the same second.
        exec(compile(source, str(path), "exec"), module.__dict__)  # noqa: S102 - the user's own
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise RegardError(f"{path} does not run: {one_line(error, path)}") from error
    finally:
        sys.path.remove(folder)
    return module


def digests(settings: Mapping[str, object]) -> dict[str, str]:
    """Return the sha256 of each file that settings name, by the plugin's name.

    >>> digests({"score": "dot", "width": 8})
    {}
    """
    hashes = {}
    for spec, path in files_of(settings.values()).items():
        try:
            hashes[spec] = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as error:
            raise RegardError(f"{path} cannot be read: {error.strerror}") from None
    return hashes


def changed(settings: Mapping[str, object], known: Mapping[str, str]) -> list[str]:
    """Return the plugins in settings whose files have changed since `digests`."""
    now = digests(settings) if known else {}
    return [spec for spec, digest in known.items() if now.get(spec) != digest]


def one_line(error: BaseException, path: Path | None = None) -> str:
    """Return an error as one line: its kind, its first line, and its line in ``path``.

    >>> one_line(ValueError("too wide\\n  by far"))
    'ValueError: too wide'
    """
    words = str(error).strip().splitlines()
    line = getattr(error, "lineno", None) if isinstance(error, SyntaxError) else None
    trace = error.__traceback__
    while trace is not None:
        if path is not None and trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    where = f" (line {line})" if line else ""
    return f"{type(error).__name__}{': ' + words[0] if words else ''}{where}"


def a(noun: str) -> str:
    """Return a noun with its article.

    >>> a("int"), a("function")
    ('an int', 'a function')
    """
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"
