"""Pictures as SVG, with presentation attributes only: the content security policy forbids inline styles.

Every picture has a title for screen readers, and the table beside it has the same numbers.
"""

from __future__ import annotations
