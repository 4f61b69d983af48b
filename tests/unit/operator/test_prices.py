"""What a site's pools cost is noted in a job when it is taken on, and never afterwards."""

from typing import Any

import pytest

from ebbtide.prices import unlisted
from ebbtide.testing.jobs import a_job
from ebbtide_operator.core.site import Site
from tests.unit.operator.worlds import JOB, World

SITE = Site(prices={"default": {"perHour": 1.5}, "spot": {"perHour": 0.5, "parkedShare": 0.1}})


def noted(site: Site, **changes: Any) -> list[dict[str, Any]]:
    world = World(a_job(**changes), site=site)
    world.rest()
    assert world.job is not None
    return list(world.job.spec.get("prices", ()))


def test_a_job_without_prices_gets_those_of_the_pools_that_it_uses() -> None:
    assert noted(SITE) == [{"pool": "default", "perHour": 1.5}]
    cheap = {"pool": "spot", "perHour": 0.5, "parkedShare": 0.1}
    assert cheap in noted(SITE, decode={"pool": "spot"})


def test_a_sites_price_says_how_the_nodes_are_sold() -> None:
    sold: dict[str, float | str | None] = {"perHour": 1.5, "capacityType": "spot"}
    assert noted(Site(prices={"default": sold})) == [{"pool": "default", **sold}]


def test_a_jobs_own_price_wins() -> None:
    own = [{"pool": "default", "perHour": 9.0}]
    assert noted(SITE, prices=own) == own


def test_a_price_is_never_converted() -> None:
    assert noted(SITE, currency="EUR") == []
    assert noted(Site(prices=SITE.prices, currency="EUR"), currency="EUR") != []


def test_a_pool_that_the_site_does_not_list_stays_unpriced() -> None:
    assert noted(Site(prices={"spot": {"perHour": 1.0}})) == []


def test_a_job_that_was_taken_on_keeps_its_prices() -> None:
    world = World(site=SITE)
    world.rest()
    world.patch(JOB, {"spec": {"prices": []}})
    world.rest()
    assert world.job is not None
    assert world.job.spec["prices"] == []


@pytest.mark.parametrize("prices", ["none", 3, [1], [{"perHour": 1.0}]])
def test_a_malformed_list_is_left_to_be_refused(prices: Any) -> None:
    assert unlisted({"prices": prices}, SITE.prices, "USD") == []
