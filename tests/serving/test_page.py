"""The page in a real browser: choosing, dropping, pasting, keys, widths, hostile names."""

import base64
import json
import re

import pytest

from bitclass.serving.page import look

from . import chromium, services

pytestmark = [chromium.needed, pytest.mark.slow]


@pytest.fixture
def browser(running, server):
    """A newly opened page; there must be no console messages and no alerts."""
    running.screen(1280)
    running.go(server.url)
    running.wait_for("document.querySelectorAll('#list li').length")
    running.problems.clear()
    yield running
    assert running.problems == []
    assert running.dialogs == []


@pytest.fixture
def image(tmp_path):
    path = tmp_path / "<i>new & odd.png"
    path.write_bytes(services.encoded(services.drawn(1, 500)))
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


def test_a_chosen_image_is_shown_with_code_and_classes(browser, image, served):
    browser.choose_file("#file", image)
    looked_at(browser, image.name)
    answer = look(served.model, served.extractor.rows([image.read_bytes()]))
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
    browser.wait_for("document.getElementById('shown').naturalWidth === 48")
    assert re.fullmatch(r"Best class: <b>bars, [0-9.]+ %\.", text(browser, "#status"))
    assert browser.value("document.getElementById('why-section').hidden")  # of texts only


@pytest.mark.parametrize("event", ["drop", "paste"])
def test_an_image_is_dropped_or_pasted(browser, event):
    content = services.encoded(services.drawn(2, 77), "JPEG")
    dropped(browser, content, "brought.jpg", "image/jpeg", event)
    looked_at(browser, "brought.jpg")
    assert text(browser, "#classes .name") == services.CLASSES[2]


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


def test_the_page_is_used_with_the_keyboard_alone(browser, server):
    stops = []
    while not stops or stops[-1] != "search":
        browser.key("Tab", number=9)
        stops.append(browser.value("document.activeElement.id"))
    assert stops == ["", "model", "file", "search"]  # the first is the name of the page
    assert browser.value("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    browser.go(f"{server.url}?model=texts")
    browser.wait_for("document.querySelector('#list li')")
    browser.value("document.getElementById('text').focus()")
    browser.call("Input.insertText", text="some music")
    browser.key("Enter", text="\r", number=13)
    looked_at(browser, "some music")
    assert browser.value("document.activeElement.id") == "result-title"
    top, bottom = "e.getBoundingClientRect().top", "e.getBoundingClientRect().bottom - innerHeight"
    assert of_each(browser, "#status", f"{top} > -1 && {bottom} <= 0") == [True]


def test_only_the_last_query_is_shown(browser):
    """A late answer must not replace that of a newer query."""
    browser.value(
        """(() => {
          const real = window.fetch;
          let first = true;
          window.fetch = async (address, options) => {
            if (first) {
              first = false;
              await new Promise((go) => (window.letGo = go));
            }
            const answer = await real(address, options);
            window.answered = (window.answered ?? 0) + 1;
            return answer;
          };
        })()"""
    )
    for i in range(2):
        content = services.encoded(services.drawn(i, 77))
        dropped(browser, content, f"{i}.png", "image/png", "drop")
    looked_at(browser, "1.png")
    browser.value("letGo()")
    browser.wait_for("window.answered === 2")
    browser.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert text(browser, "#result-title") == "1.png"


@pytest.mark.parametrize("width", [320, 390, 1280])
def test_no_overflow_at_any_width(browser, image, width):
    browser.screen(width)
    browser.choose_file("#file", image)
    looked_at(browser, image.name)
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert max(of_each(browser, "main *", "e.getBoundingClientRect().right")) <= width + 1
    controls = ".button, .controls input[type=search], select"
    height = "e.offsetParent ? e.getBoundingClientRect().height : 40"
    assert min(of_each(browser, controls, height)) >= 40


def test_classes_are_searched(browser):
    assert sorted(texts(browser, "#list strong")) == sorted(services.CLASSES)
    fill(browser, "search", "BARS", "input")
    wait_for_text(browser, "list-text", "1 class")
    assert texts(browser, "#list strong") == ["<b>bars"]
    # Names of classes are text and never markup.
    assert texts(browser, "b, img[src=x], [onerror]") == []
    fill(browser, "search", "absent", "input")
    wait_for_text(browser, "list-text", "0 classes")


def test_another_model_is_chosen(browser, served):
    fill(browser, "model", "rows", "change")
    browser.wait_for("location.search === '?model=rows' && document.querySelector('#list li')")
    assert f"{served.model.n_features:,} features" in text(browser, "#facts")
    assert browser.value("document.getElementById('drop').hidden")


def classify(browser, server, asked):
    browser.go(f"{server.url}?model=texts")
    browser.wait_for("document.querySelector('#list li')")
    fill(browser, "text", asked, "input")
    click(browser, "classify")


@pytest.mark.parametrize("width", [390, 1280])
def test_a_text_is_classified_and_its_n_grams_listed(browser, server, width):
    browser.screen(width)
    classify(browser, server, "some <b>music</b>")
    looked_at(browser, "some <b>music</b>")
    assert text(browser, "#classes .name") == "music"
    assert browser.value("document.getElementById('shown').hidden")
    assert browser.value("document.documentElement.scrollWidth") <= width
    answer = look(services.text_model(), ["some <b>music</b>"])["classes"]
    minus = "\u2212"
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


def test_an_input_of_no_known_class_is_none_of_these(browser):
    answer = {"classes": [{"label": "a", "probability": 0.9}], "typicality": 0.01}
    for typicality, told in ((0.01, "None of these: 99.0 % of the known inputs fit better. Nearest "
                              "class: a, 90.0 %."), (0.5, "Best class: a, 90.0 %.")):  # fmt: skip
        given = json.dumps(answer | {"typicality": typicality})
        assert browser.value(f"verdict({given})") == told
    rejects = "Object.assign(model, {reject: 0.005})"
    assert browser.value(f"({rejects}, verdict({json.dumps(answer)}))") == "Best class: a, 90.0 %."


@pytest.mark.parametrize(
    ("asked", "told"),
    [("日本語", "The model knows none of the n-grams of this text"), ("music " * 400, "too long")],
)
def test_a_text_that_cannot_be_explained(browser, server, asked, told):
    classify(browser, server, asked)
    browser.wait_for(f"document.getElementById('why-text').textContent.includes({told!r})")
    assert texts(browser, "#why .ngram") == []
    assert browser.value("document.getElementById('why-class').offsetParent === null")
