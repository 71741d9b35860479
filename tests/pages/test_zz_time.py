import time, pytest
from typing import Any
from tests.pages.test_browser import *
from tests.pages import test_browser as tb
del globals()["test_axe_finds_nothing"]
for n in [n for n in list(globals()) if n.startswith("test_")]: del globals()[n]
def test_it(page, sign_in, site):
    ana=chief(); make_pool(members=2, slots=1); make_pool("dense", members=61, slots=3)
    ids = {"held": claim().id, "member": member("env-1").pk}; claim(); ids["waiting"] = claim(owner="b").id
    sign_in(page, ana)
    for path in PAGES:
        t=time.time(); page.goto(path.format(**ids)); t1=time.time(); n=len(faults(page)); print(path, round(t1-t,2), round(time.time()-t1,2))
    t=time.time(); page.goto("/claims/"); t1=time.time(); page.locator(LIVE).wait_for(); print("live", round(t1-t,2), round(time.time()-t1,2))
    for k in ("j","x","j","j","Shift+X","Escape"):
        t=time.time(); page.keyboard.press(k); print(k, round(time.time()-t,2))
    t=time.time(); page.keyboard.press("k"); page.keyboard.press("x"); page.locator(".bulk").get_by_role("button", name="Cancel…").click(); page.locator("#dialog[open]").wait_for(); print("dlg", round(time.time()-t,2))
    t=time.time(); page.keyboard.press("Control+Enter"); page.locator("#dialog").wait_for(state="hidden");print("confirm", round(time.time()-t,2))
    t=time.time(); page.locator(f'[data-key="{ids["waiting"]}"]').wait_for(state="detached"); print("gone", round(time.time()-t,2))
