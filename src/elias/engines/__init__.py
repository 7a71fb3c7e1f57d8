"""Engines that run prediction on more than one process or machine; each needs a package of its own."""
