"use strict";

const byId = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
let maxBytes = 0;
let model = null; // facts about the selected model
let api = ""; // base URL of its API
let latestQuery = 0; // answers to earlier queries are dropped
let shownUrl = null;

// Text from files is only ever set as text or attribute, never as markup.
function element(name, attributes = {}, ...children) {
  const created = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) created.setAttribute(key, value);
  created.append(...children);
  return created;
}

function pluralise(n, one, many) {
  return `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
}

function squares(bits, columns, wanted) {
  let path = "";
  for (let k = 0; k < bits.length; k++) {
    if (wanted(k)) path += `M${k % columns} ${Math.floor(k / columns)}h.86v.86h-.86z`;
  }
  return path;
}

function pattern(bits, label, reference = bits) {
  const columns = bits.length <= 128 ? 16 : bits.length <= 512 ? 32 : 64;
  const rows = Math.ceil(bits.length / columns);
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", `0 0 ${columns} ${rows}`);
  svg.setAttribute("preserveAspectRatio", "xMinYMin");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", label);
  const layers = {
    clear: (k) => bits[k] === "0" && reference[k] === "0",
    set: (k) => bits[k] === "1" && reference[k] === "1",
    other: (k) => bits[k] === "1" && reference[k] === "0",
    "other pale": (k) => bits[k] === "0" && reference[k] === "1",
  };
  for (const [name, wanted] of Object.entries(layers)) {
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("class", name);
    path.setAttribute("d", squares(bits, columns, wanted));
    svg.append(path);
  }
  return svg;
}

function percent(probability) {
  if (probability > 0 && probability < 0.001) return "< 0.1 %";
  return `${(100 * probability).toFixed(1)} %`;
}

function classItem(found, bits) {
  const bar = element("div");
  bar.style.width = `${100 * found.probability}%`;
  return element(
    "li", {},
    pattern(found.bits, `Code of ${found.label}, ${pluralise(found.distance, "bit differs", "bits differ")}`, bits),
    element("div", { class: "name" }, found.label),
    element(
      "div", { class: "numbers" },
      element("div", { class: "bar", "aria-hidden": "true" }, bar),
      element("span", {}, percent(found.probability)),
      element("span", {}, pluralise(found.distance, "bit", "bits")),
    ),
  );
}

function ngramItem([ngram, share], largest) {
  const bar = element("div", { class: share < 0 ? "against" : "for" });
  bar.style.width = `${(50 * Math.abs(share)) / largest}%`;
  const sign = share < 0 ? "\u2212" : "+";
  return element(
    "li", {},
    element("span", { class: "ngram" }, ngram.replace(/^ | $/g, "\u2423")),
    element("div", { class: "signed", "aria-hidden": "true" }, bar),
    element("span", { class: "share" }, `${sign}${(100 * Math.abs(share)).toFixed(1)} %`),
  );
}

// Show the n-grams of a text that contribute for and against one of the nearest classes.
function explain(classes, chosenClass) {
  const explained = classes.every((found) => "ngrams" in found);
  byId("why-section").hidden = !model.ngrams;
  const found = explained ? classes[chosenClass].ngrams : [];
  const ngrams = found.some(([ngram]) => ngram.trim()) ? found : []; // every text has the space
  const largest = Math.max(...ngrams.map(([, share]) => Math.abs(share)), 1e-9);
  byId("why").replaceChildren(...ngrams.map((each) => ngramItem(each, largest)));
  byId("why-class").closest(".controls").hidden = !ngrams.length;
  byId("why-text").textContent = ngrams.length
    ? "Relative contributions of the n-grams to the score of the class. \u2423 marks the start or end of a word."
    : explained ? "The model knows none of the n-grams of this text, so all classes are equally likely."
      : "The text is too long to be explained.";
}

function listItem(text, ...names) {
  return element("li", {}, element("span", {}, ...names), element("span", { class: "hint" }, text));
}

function labelItem(found) {
  const text = "nearest" in found
    ? `${pluralise(found.distance, "bit", "bits")} from ${found.nearest}` : "";
  return listItem(text, element("strong", {}, found.label));
}

// Show the classes that match the search; the button adds the next ones to those shown.
let latestList = 0;
async function listClasses(start) {
  const query = ++latestList;
  const list = byId("list");
  try {
    const search = encodeURIComponent(byId("search").value);
    const answer = await ask(`${api}/classes?start=${start}&search=${search}`, {});
    if (query !== latestList) return;
    const items = answer.classes.map(labelItem);
    if (start) list.append(...items);
    else list.replaceChildren(...items);
    byId("more-classes").hidden = list.children.length >= answer.total;
    byId("list-text").textContent = pluralise(answer.total, "class", "classes");
  } catch (error) {
    if (query === latestList) byId("list-text").textContent = failure(error);
  }
}

function failure(error) {
  const lost = error instanceof TypeError;
  return lost ? "The server does not respond; is the command still running?" : error.message;
}

function showStatus(status, error = "") {
  byId("status").textContent = status;
  byId("error").textContent = error;
}

function show(answer, title, url) {
  byId("result-title").textContent = title;
  byId("shown").hidden = url === "";
  if (url) byId("shown").src = url;
  if (shownUrl) URL.revokeObjectURL(shownUrl);
  shownUrl = url.startsWith("blob:") ? url : null;
  const nSet = [...answer.bits].filter((bit) => bit === "1").length;
  const text = `Code: ${pluralise(answer.bits.length, "bit", "bits")}, ${nSet} set`;
  byId("code").replaceChildren(pattern(answer.bits, text));
  byId("code-text").textContent = text;
  byId("classes").replaceChildren(...answer.classes.map((found) => classItem(found, answer.bits)));
  byId("why-class").replaceChildren(
    ...answer.classes.map((found, i) => element("option", { value: i }, found.label)),
  );
  byId("why-class").onchange = (event) => explain(answer.classes, Number(event.target.value));
  explain(answer.classes, 0);
  byId("result").hidden = false;
  byId("result-title").focus({ preventScroll: true });
}

async function ask(address, options) {
  const response = await fetch(address, options);
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

// The share of inputs of known classes that are rejected as of no known class, unless the model says.
const REJECTED = 0.04;

// The first line of an answer: the best class, and whether the input is of any known class.
function verdict({ classes: [best], typicality }) {
  const label = `${best.label}, ${percent(best.probability)}`;
  if (typicality === undefined || typicality >= (model.reject || REJECTED)) return `Best class: ${label}.`;
  return `None of these: ${percent(1 - typicality)} of the known inputs fit better. Nearest class: ${label}.`;
}

// Send an input, and show the answer unless there is a newer one.
async function look(body, kind, title, url) {
  const query = ++latestQuery;
  showStatus("Classifying …");
  try {
    const answer = await ask(`${api}/look`, { method: "POST", body, headers: { "Content-Type": kind } });
    if (query !== latestQuery) return;
    show(answer, title, url);
    showStatus(verdict(answer));
    byId("status").scrollIntoView({ block: "nearest" });
  } catch (error) {
    if (query !== latestQuery) return;
    showStatus("", failure(error));
  }
}

function lookAtFile(file) {
  if (file.size > maxBytes) {
    latestQuery++;
    showStatus("", `${file.name} has ${(file.size / 1e6).toFixed(1)} MB; the maximum is ${maxSize()}.`);
    return;
  }
  const kind = file.type.startsWith("image/") ? file.type : "application/octet-stream";
  look(file, kind, file.name || "The pasted image", URL.createObjectURL(file));
}

function lookAtText() {
  const text = byId("text").value;
  look(text, "text/plain", text.length > 80 ? `${text.slice(0, 80)} …` : text, "");
}

function maxSize() {
  return `${Math.floor(maxBytes / 1e6)}\u00a0MB`;
}

function takeFiles(files) {
  if (model.input !== "images") return;
  const [file] = files;
  if (file) lookAtFile(file);
  else showStatus("", "That was not a file; drop or paste an image.");
}

byId("file").addEventListener("change", (event) => {
  if (event.target.files.length) takeFiles(event.target.files);
  event.target.value = ""; // so that the same file can be chosen again
});
document.addEventListener("paste", (event) => {
  if (!event.target.closest("textarea, input[type=search]")) takeFiles(event.clipboardData.files);
});
document.addEventListener("dragover", (event) => {
  event.preventDefault();
  document.body.classList.add("dragging");
});
for (const name of ["dragleave", "drop", "dragend"]) {
  document.addEventListener(name, () => document.body.classList.remove("dragging"));
}
document.addEventListener("drop", (event) => {
  event.preventDefault();
  takeFiles(event.dataTransfer.files);
});
byId("classify").addEventListener("click", lookAtText);
byId("text").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  lookAtText();
});
byId("search").addEventListener("input", () => listClasses(0));
byId("more-classes").addEventListener("click", () => listClasses(byId("list").children.length));
byId("model").addEventListener("change", (event) => {
  location.href = `?model=${encodeURIComponent(event.target.value)}`;
});

function showModel(facts) {
  model = facts;
  api = `api/models/${facts.name}`;
  const kinds = {
    images: `${facts.extractor} features`, texts: "texts",
    rows: pluralise(facts.features, "feature", "features"),
  };
  const parts = [`${pluralise(facts.classes, "class", "classes")} in ${pluralise(facts.bits, "bit", "bits")}`];
  byId("facts").textContent = [...parts, kinds[facts.input]].join(" · ");
  byId("drop").hidden = facts.input !== "images";
  byId("write").hidden = facts.input !== "texts";
  byId("rows-only").hidden = facts.input !== "rows";
  byId("rows-only").textContent =
    `This model takes rows of ${pluralise(facts.features, "feature", "features")}; send them to predict/${facts.name}.`;
  byId("hint").textContent = `JPEG, PNG, WebP, GIF, BMP or TIFF, up to ${maxSize()}`;
}

async function start() {
  const { models, max_bytes: limit } = await ask("api/models", {});
  maxBytes = limit;
  const wanted = new URLSearchParams(location.search).get("model");
  showModel(models.find((each) => each.name === wanted) ?? models[0]);
  byId("model").replaceChildren(...models.map((each) => element("option", {}, each.name)));
  byId("model").value = model.name;
  byId("model-choice").hidden = models.length === 1;
  listClasses(0);
}

start().catch((error) => showStatus("", failure(error)));
