"""PRODUCT A: five comparisons, tightest first. Works on rows; knows no file and no database."""
