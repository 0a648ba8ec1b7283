"""The page in a real browser: choosing, dropping, pasting, keys, widths, hostile names."""

import base64
import json

import chromium
import explore_images
import pytest

pytestmark = chromium.needed


@pytest.fixture
def browser(running, server):
    """A newly opened page; there must be no console messages and no alerts."""
    running.screen(1280)
    running.go(server.url)
    for part in ("images", "list"):
        running.wait_for(f"document.querySelectorAll('#{part} li').length")
    running.wait_for("document.getElementById('pairs-text').textContent")
    running.problems.clear()
    yield running
    assert running.problems == []
    assert running.dialogs == []


@pytest.fixture
def image(tmp_path):
    path = tmp_path / "<i>new & odd.png"
    path.write_bytes(explore_images.encoded(explore_images.drawn(1, 500)))
    return path


def looked_at(browser, title):
    browser.wait_for(
        f"!document.getElementById('result').hidden && "
        f"document.getElementById('result-title').textContent === {json.dumps(title)}"
    )


def text(browser, selector):
    return browser.value(f"document.querySelector({json.dumps(selector)}).textContent")


def texts(browser, selector):
    return of_each(browser, selector, "e.textContent")


def of_each(browser, selector, expression):
    """Value of an expression for each element e."""
    return browser.value(
        f"[...document.querySelectorAll({json.dumps(selector)})].map(e => {expression})"
    )


def fill(browser, identifier, value, event):
    """Set the value of a field, as a user does by typing or choosing."""
    browser.value(
        f"""(() => {{
          const field = document.getElementById({json.dumps(identifier)});
          field.value = {json.dumps(value)};
          field.dispatchEvent(new Event({json.dumps(event)}, {{bubbles: true}}));
        }})()"""
    )


def click(browser, identifier):
    browser.value(f"document.getElementById({json.dumps(identifier)}).click()")


def wait_for_text(browser, identifier, expected):
    browser.wait_for(
        f"document.getElementById({json.dumps(identifier)}).textContent === {json.dumps(expected)}"
    )


def dropped(browser, content, name, kind, event, target="document.body"):
    """Send a file to the page in an event, as a browser does when a user drops or pastes one."""
    data = base64.b64encode(content).decode()
    field = "dataTransfer" if event == "drop" else "clipboardData"
    class_ = "DragEvent" if event == "drop" else "ClipboardEvent"
    browser.value(
        f"""(() => {{
          const bytes = Uint8Array.from(atob({json.dumps(data)}), (c) => c.charCodeAt(0));
          const data = new DataTransfer();
          data.items.add(new File([bytes], {json.dumps(name)}, {{type: {json.dumps(kind)}}}));
          const options = {{bubbles: true, cancelable: true, {field}: data}};
          {target}.dispatchEvent(new {class_}({json.dumps(event)}, options));
        }})()"""
    )


def test_a_chosen_image_is_shown_with_code_classes_and_images(browser, image, explorer, served):
    browser.choose_file("#file", image)
    looked_at(browser, image.name)
    answer = explorer.look(served.features([image.read_bytes()]))
    n_set = answer["bits"].count("1")
    assert text(browser, "#code-text") == f"Code: 96 bits, {n_set} set"
    # Set and unset bits are squares of different classes.
    squares = "e.getAttribute('d').split('M').length - 1"
    for name, n_squares in (("set", n_set), ("clear", 96 - n_set), ("other", 0)):
        assert sum(of_each(browser, f"#code svg path.{name}", squares)) == n_squares
    found = answer["classes"]
    assert texts(browser, "#classes .name") == [each["label"] for each in found]
    assert found[0]["label"] == "<b>bars"
    marked = "[...e.querySelectorAll('path.other')].map(p => p.getAttribute('d')).join('')"
    different = [squares.count("M") for squares in of_each(browser, "#classes svg", marked)]
    assert different == [each["distance"] for each in found]
    numbers = of_each(
        browser, "#classes .numbers", "[...e.querySelectorAll('span')].map(s => s.textContent)"
    )
    for each, (share, distance) in zip(found, numbers, strict=True):
        assert distance == f"{each['distance']} bit{'s' if each['distance'] != 1 else ''}"
        assert share == "< 0.1 %" or float(share[:-2]) == pytest.approx(
            100 * each["probability"], abs=0.051
        )
    shown = of_each(browser, "#near a", "e.getAttribute('href')")
    assert shown == [f"#image-{each['row']}" for each in answer["images"]]
    browser.wait_for("document.getElementById('shown').naturalWidth === 48")
    assert text(browser, "#status").startswith("Nearest class: <b>bars, ")
    assert browser.value("document.getElementById('why-section').hidden")  # of texts only
    # Every control and image has a name.
    tree = browser.call("Accessibility.getFullAXTree")["nodes"]
    wanted = {"button", "link", "image", "textbox", "searchbox", "checkbox", "combobox", "heading"}
    nameless = [
        node for node in tree
        if not node.get("ignored") and node["role"]["value"] in wanted
        and not node.get("name", {}).get("value")
    ]  # fmt: skip
    assert nameless == []
    assert browser.value("document.documentElement.lang") == "en"


@pytest.mark.parametrize("event", ["drop", "paste"])
def test_an_image_is_dropped_or_pasted(browser, event):
    content = explore_images.encoded(explore_images.drawn(3, 77), "JPEG")
    dropped(browser, content, "brought.jpg", "image/jpeg", event)
    looked_at(browser, "brought.jpg")
    assert text(browser, "#classes .name") == "rings & dots"


def test_an_invalid_image_is_reported_and_the_next_one_works(browser, image):
    dropped(browser, b"hello", "letter.txt", "text/plain", "drop")
    browser.wait_for("document.getElementById('error').textContent")
    assert "cannot be read as an image" in text(browser, "#error")
    # The error response of the server is in the console, as intended.
    assert all("422" in problem for problem in browser.problems)
    browser.problems.clear()
    browser.choose_file("#file", image)
    looked_at(browser, image.name)
    assert text(browser, "#error") == ""


def test_a_file_that_is_too_large_is_not_sent(browser):
    browser.value("maxBytes = 10")
    dropped(browser, b"x" * 11, "large.png", "image/png", "drop")
    browser.wait_for("document.getElementById('error').textContent")
    assert text(browser, "#error").startswith("large.png has 0.0 MB; the maximum is")


def test_the_page_is_used_with_the_keyboard_alone(browser):
    # The name of the page, models, a file, confused classes, search, classes, filter, images.
    stops = []
    while not stops or stops[-1] != "#image-0":
        browser.key("Tab", number=9)
        stops.append(
            browser.value(
                "document.activeElement.id || document.activeElement.getAttribute('href')"
            )
        )
    n_links = browser.value("document.querySelectorAll('#pairs a, #list a').length")
    assert [stop for stop in stops if not stop.startswith("#class-")] == [
        "#", "model", "file", "search", "wrong", "#image-0",
    ]  # fmt: skip
    assert len(stops) == 6 + n_links
    outline = browser.value("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    browser.key("Enter", text="\r", number=13)
    looked_at(browser, "<b>bars: <b>bars/00.png")
    assert browser.value("document.activeElement.id") == "result-title"
    browser.key("Tab", number=9)
    assert browser.value("document.activeElement.closest('#near') !== null")
    first = browser.value("document.activeElement.getAttribute('href')")
    browser.key("Enter", text="\r", number=13)
    browser.wait_for(f"location.hash === {json.dumps(first)}")
    browser.value("history.back()")
    looked_at(browser, "<b>bars: <b>bars/00.png")


def test_the_file_input_shows_its_focus(browser):
    browser.value("document.getElementById('file').focus()")
    assert of_each(browser, "#drop", "getComputedStyle(e).outlineStyle") == ["solid"]
    assert browser.value("document.getElementById('file').labels[0].id") == "drop"


def test_a_url_shows_its_image(browser, server):
    browser.go(f"{server.url}#image-13")
    looked_at(browser, "<img src=x onerror=alert(1)>: <img src=x onerror=alert(1)>/01.png")


def test_names_of_files_and_classes_are_text_and_never_markup(browser):
    browser.value("location.hash = '#image-36'")
    looked_at(browser, f"stripes: stripes/{explore_images.HOSTILE_NAME}")
    browser.wait_for("document.getElementById('shown').complete")  # others load when in sight
    assert texts(browser, "b, i, img[src=x], [onerror], [onload]") == []
    assert set(texts(browser, "#classes .name")) == set(explore_images.CLASSES)


def test_only_the_last_query_is_shown(browser):
    """A late answer must not replace that of a newer query."""
    browser.value(
        """(() => {
          const real = window.fetch;
          window.fetch = async (address, options) => {
            if (String(address).endsWith("/1")) await new Promise((go) => (window.letGo = go));
            return real(address, options);
          };
        })()"""
    )
    browser.value("location.hash = '#image-1'")
    browser.wait_for("window.letGo")
    browser.value("location.hash = '#image-20'")
    browser.wait_for("document.getElementById('result-title').textContent")
    title = text(browser, "#result-title")
    browser.value("letGo(), new Promise(done => setTimeout(done, 300))")
    assert text(browser, "#result-title") == title


@pytest.mark.parametrize("width", [320, 390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_overflow_at_any_width_and_legible_text(browser, image, width, scheme):
    browser.screen(width, scheme=scheme)
    browser.choose_file("#file", image)
    looked_at(browser, image.name)
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert max(of_each(browser, "main *", "e.getBoundingClientRect().right")) <= width + 1
    assert browser.value(CONTRASTS) == []
    controls = ".button, .images a, .list a, .controls input[type=search], select"
    height = "e.offsetParent ? e.getBoundingClientRect().height : 40"
    assert min(of_each(browser, controls, height)) >= 40


# Texts whose contrast with what lies behind them is below 4.5, the limit of WCAG AA.
CONTRASTS = """
(() => {
  const parse = (c) => c.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const part = (v) => ((v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length < 4 || c[3] > 0) return c;
    }
    return [255, 255, 255];
  };
  const low = [];
  for (const e of document.querySelectorAll("body *")) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || e.closest("noscript, [hidden]")) continue;
    const both = [light(parse(getComputedStyle(e).color)), light(behind(e))];
    const [a, b] = both.sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) low.push(e.outerHTML.slice(0, 80));
  }
  return low;
})()
"""


def test_classes_are_searched_and_lead_to_their_images(browser):
    assert sorted(texts(browser, "#list strong")) == sorted(explore_images.CLASSES)
    fill(browser, "search", "RING", "input")
    wait_for_text(browser, "list-text", "1 class")
    assert texts(browser, "#list strong") == ["rings & dots"]
    browser.value("document.querySelector('#list a').click()")
    wait_for_text(browser, "images-text", "12 images")
    assert text(browser, "#images-title") == "Images of rings & dots"
    assert texts(browser, "#images a span:first-of-type") == ["rings & dots"] * 12
    click(browser, "all")
    wait_for_text(browser, "images-text", "48 images")
    fill(browser, "search", "absent", "input")
    wait_for_text(browser, "list-text", "0 classes")


def test_more_images_are_added_until_all_are_shown(browser):
    assert len(texts(browser, "#images li")) == 24
    click(browser, "more-images")
    browser.wait_for("document.querySelectorAll('#images li').length === 48")
    assert browser.value("document.getElementById('more-images').hidden")


def test_misclassified_images_are_filtered(browser, explorer):
    n_wrong = explorer.images(wrong=True)["total"]
    click(browser, "wrong")
    wait_for_text(browser, "images-text", f"{n_wrong} image{'s' if n_wrong != 1 else ''}")
    assert len(texts(browser, "#pairs li")) == len(explorer.pairs["pairs"])


def test_another_model_is_chosen(browser, served):
    fill(browser, "model", "rows", "change")
    browser.wait_for("location.search === '?model=rows' && document.querySelector('#list li')")
    browser.wait_for("document.querySelectorAll('#pairs li').length")
    assert f"{served.model.n_features:,} features" in text(browser, "#facts")
    assert texts(browser, "#list a") == []  # there are no images that a class could lead to
    assert text(browser, "#pairs .hint").endswith("apart")
    assert browser.value("document.getElementById('drop').hidden")


def classify(browser, server, asked):
    browser.go(f"{server.url}?model=texts")
    browser.wait_for("document.querySelector('#list li')")
    fill(browser, "text", asked, "input")
    click(browser, "classify")


@pytest.mark.parametrize("width", [390, 1280])
def test_a_text_is_classified_and_its_n_grams_listed(browser, server, texts_explorer, width):
    browser.screen(width)
    classify(browser, server, "some <b>music</b>")
    looked_at(browser, "some <b>music</b>")
    assert text(browser, "#classes .name") == "music"
    assert browser.value("document.getElementById('shown').hidden")
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert browser.value(CONTRASTS) == []
    answer, minus = texts_explorer.look(["some <b>music</b>"])["classes"], "\u2212"
    assert texts(browser, "#why-class option") == ["music", "door"]
    for i, found in enumerate(answer):
        fill(browser, "why-class", i, "change")
        assert len(found["ngrams"]) > 5
        shown = [name.replace("␣", " ") for name in texts(browser, "#why .ngram")]
        assert shown == [ngram for ngram, _ in found["ngrams"]]
        shares = [share for _, share in found["ngrams"]]
        assert texts(browser, "#why .share") == [
            f"{minus if share < 0 else '+'}{100 * abs(share):.1f} %" for share in shares
        ]
        assert of_each(browser, "#why .signed div", "e.className") == [
            "against" if share < 0 else "for" for share in shares
        ]
    assert answer[0]["ngrams"][0][1] > 0 > answer[1]["ngrams"][-1][1]


@pytest.mark.parametrize(
    ("asked", "told"),
    [("日本語", "The model knows none of the n-grams of this text"), ("music " * 400, "too long")],
)
def test_a_text_that_cannot_be_explained(browser, server, asked, told):
    classify(browser, server, asked)
    browser.wait_for(f"document.getElementById('why-text').textContent.includes({told!r})")
    assert texts(browser, "#why .ngram") == []
    assert browser.value("document.getElementById('why-class').offsetParent === null")
