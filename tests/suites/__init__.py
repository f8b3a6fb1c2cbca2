"""Real test suites that nobody here wrote, run with and without our bridges, and each difference explained.

``python3 -m tests.suites.prepare`` gathers what a machine may lack, ``python3 -m tests.suites --out DIR`` runs.
"""
