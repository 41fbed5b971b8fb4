"""One contract suite per seam: ``CHECKS``, run by ``run_checks`` or ``assert_contract``."""
