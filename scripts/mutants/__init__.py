"""Small mistakes, put in one by one: each must turn a test red, or the rule that it breaks has no test."""
