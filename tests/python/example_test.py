"""The notebook-like example runs from top to bottom, and what it says holds together."""
import contextlib
import io
import pathlib
import re
import runpy
import unittest

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "python" / "will_it_fit.py"


class Example(unittest.TestCase):
    def test_it_runs(self):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            names = runpy.run_path(str(EXAMPLE))
        text = said.getvalue()
        self.assertTrue(names["report"].fits)
        self.assertGreater(names["mixed"], names["plain"])
        self.assertIn("more than there is", text)
        rows = int(re.search(r"(\d+) rows fit", text).group(1))
        self.assertEqual(rows, names["rows"])
        self.assertGreater(names["forward"].use.kept, 0)
        self.assertLess(names["backward"].use.kept, 0)


if __name__ == "__main__":
    unittest.main()
