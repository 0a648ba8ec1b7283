"use strict";

const byId = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
let maxBytes = 0;
let model = null; // facts about the selected model
let api = ""; // base URL of its API
let chosen = null; // the class whose images are shown, or null for all
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

function imageItem(image) {
  const title = image.label ?? image.name;
  const link = element(
    "a", { href: `#image-${image.row}`, title: image.name },
    element("img", { src: `${api}/images/${image.row}.jpg`, alt: "", loading: "lazy", width: 192, height: 192 }),
    element("span", {}, title),
  );
  if ("predicted" in image) link.append(element("span", { class: "no" }, `predicted ${image.predicted}`));
  if ("distance" in image) {
    link.append(element("span", { class: "far" }, pluralise(image.distance, "bit away", "bits away")));
  }
  return element("li", {}, link);
}

// A class as a link to its images, if there are any.
function listItem(label, text, ...names) {
  const parts = [element("span", {}, ...names), element("span", { class: "hint" }, text)];
  if (!model.images) return element("li", {}, element("div", {}, ...parts));
  return element("li", {}, element("a", { href: `#class-${encodeURIComponent(label)}` }, ...parts));
}

function pairItem(pair) {
  const text = "images" in pair
    ? pluralise(pair.images, "image", "images") : pluralise(pair.distance, "bit apart", "bits apart");
  const names = "images" in pair
    ? [pair.label, " predicted as ", pair.other] : [pair.label, " and ", pair.other];
  return listItem(pair.label, text, element("strong", {}, names[0]), names[1], element("strong", {}, names[2]));
}

function labelItem(found) {
  const parts = [];
  if ("images" in found) parts.push(`${pluralise(found.images, "image", "images")}, ${found.wrong} misclassified`);
  if ("nearest" in found) parts.push(`${pluralise(found.distance, "bit", "bits")} from ${found.nearest}`);
  return listItem(found.label, parts.join(" · "), element("strong", {}, found.label));
}

// A paged list: `load(0)` shows the first page, and the button adds the next one.
function pagedList(name, listId, buttonId, textId, addressOf, itemOf, kinds) {
  let latest = 0;
  const list = byId(listId), button = byId(buttonId);
  async function load(start) {
    const query = ++latest;
    try {
      const answer = await ask(addressOf(start), {});
      if (query !== latest) return;
      const items = answer[name].map(itemOf);
      if (start) list.append(...items);
      else list.replaceChildren(...items);
      button.hidden = list.children.length >= answer.total;
      byId(textId).textContent = pluralise(answer.total, ...kinds);
    } catch (error) {
      if (query === latest) byId(textId).textContent = failure(error);
    }
  }
  button.addEventListener("click", () => load(list.children.length));
  return () => load(0);
}

const listClasses = pagedList(
  "classes", "list", "more-classes", "list-text",
  (start) => `${api}/classes?start=${start}&search=${encodeURIComponent(byId("search").value)}`,
  labelItem, ["class", "classes"],
);
const listImages = pagedList(
  "images", "images", "more-images", "images-text",
  (start) => `${api}/images?start=${start}&label=${encodeURIComponent(chosen ?? "")}` +
    `&wrong=${byId("wrong").checked ? 1 : 0}`,
  imageItem, ["image", "images"],
);

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
  byId("near").replaceChildren(...answer.images.map(imageItem));
  byId("near-section").hidden = answer.images.length === 0;
  byId("result").hidden = false;
  byId("result-title").focus({ preventScroll: true });
  byId("result").scrollIntoView({ block: "start" });
}

async function ask(address, options) {
  const response = await fetch(address, options);
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

// Send a query, and show the answer unless there is a newer query.
async function look(address, options, titleOf, url) {
  const query = ++latestQuery;
  showStatus("Classifying …");
  try {
    const answer = await ask(address, options);
    if (query !== latestQuery) return;
    show(answer, titleOf(answer), url);
    const [first] = answer.classes;
    showStatus(`Nearest class: ${first.label}, ${pluralise(first.distance, "bit", "bits")} away.`);
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
  leaveAddress();
  const kind = file.type.startsWith("image/") ? file.type : "application/octet-stream";
  const options = { method: "POST", body: file, headers: { "Content-Type": kind } };
  look(`${api}/look`, options, () => file.name || "The pasted image", URL.createObjectURL(file));
}

function lookAtText() {
  const text = byId("text").value;
  leaveAddress();
  const options = { method: "POST", body: text, headers: { "Content-Type": "text/plain" } };
  look(`${api}/look`, options, () => (text.length > 80 ? `${text.slice(0, 80)} …` : text), "");
}

function maxSize() {
  return `${Math.floor(maxBytes / 1e6)}\u00a0MB`;
}

// What is shown next has no URL of its own.
function leaveAddress() {
  if (location.hash) history.pushState(null, "", location.pathname + location.search);
}

function lookAtAddress() {
  const image = /^#image-(\d+)$/.exec(location.hash);
  const label = /^#class-(.+)$/.exec(location.hash);
  const before = chosen;
  if (!image) chosen = label ? decodeURIComponent(label[1]) : null;
  if (chosen !== before) showChosen();
  if (!image) {
    latestQuery++;
    byId("result").hidden = true;
    showStatus("");
    if (label) byId("images-section").scrollIntoView({ block: "start" });
    return;
  }
  const title = (answer) => (answer.label === null ? answer.name : `${answer.label}: ${answer.name}`);
  look(`${api}/images/${image[1]}`, {}, title, `${api}/images/${image[1]}.jpg`);
}

function showChosen() {
  byId("images-title").textContent = chosen === null ? "Images" : `Images of ${chosen}`;
  byId("all").hidden = chosen === null;
  listImages();
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
byId("search").addEventListener("input", listClasses);
byId("wrong").addEventListener("change", listImages);
byId("model").addEventListener("change", (event) => {
  location.href = `?model=${encodeURIComponent(event.target.value)}`;
});
window.addEventListener("hashchange", lookAtAddress);

function showModel(facts) {
  model = facts;
  api = `api/models/${facts.name}`;
  const kinds = {
    images: `${facts.extractor} features`, texts: "texts",
    rows: pluralise(facts.features, "feature", "features"),
  };
  const parts = [`${pluralise(facts.classes, "class", "classes")} in ${pluralise(facts.bits, "bit", "bits")}`];
  if (facts.images) parts.push(pluralise(facts.images, "image", "images"));
  byId("facts").textContent = [...parts, kinds[facts.input]].join(" · ");
  byId("drop").hidden = facts.input !== "images";
  byId("write").hidden = facts.input !== "texts";
  byId("rows-only").hidden = facts.input !== "rows";
  byId("rows-only").textContent =
    `This model takes rows of ${pluralise(facts.features, "feature", "features")}; send them to predict/${facts.name}.`;
  byId("hint").textContent = `JPEG, PNG, WebP, GIF, BMP or TIFF, up to ${maxSize()}`;
  byId("images-section").hidden = !facts.images;
  byId("wrong-choice").hidden = !facts.labelled;
}

async function start() {
  const { models, max_bytes: limit } = await ask("api/models", {});
  maxBytes = limit;
  const wanted = new URLSearchParams(location.search).get("model");
  showModel(models.find((each) => each.name === wanted) ?? models[0]);
  byId("model").replaceChildren(...models.map((each) => element("option", {}, each.name)));
  byId("model").value = model.name;
  byId("model-choice").hidden = models.length === 1;
  listClasses();
  if (model.images) listImages();
  if (location.hash) lookAtAddress();
  const { by, pairs } = await ask(`${api}/pairs`, {});
  byId("pairs-section").hidden = pairs.length === 0;
  byId("pairs-text").textContent =
    by === "images" ? "Images of one class that are predicted as another" : "Classes with the nearest codes";
  byId("pairs").replaceChildren(...pairs.map(pairItem));
}

start().catch((error) => showStatus("", failure(error)));
