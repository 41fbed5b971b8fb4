"""Fakes, contract suites, oracles and golden runners, public: users test their parts with them."""
