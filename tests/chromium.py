"""The browser that tests look at pages with."""

import shutil

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or ""
