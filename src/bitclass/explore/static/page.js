"use strict";

const byId = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
let maxBytes = 0;
let asked = 0; // the latest question; answers to earlier ones are dropped
let shownUrl = null;

// Everything that comes from files is set as text or attribute here, and never as markup.
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function counted(n, one, many) {
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
    pattern(found.bits, `Code of ${found.label}, ${counted(found.distance, "bit differs", "bits differ")}`, bits),
    element("div", { class: "name" }, found.label),
    element(
      "div", { class: "numbers" },
      element("div", { class: "bar", "aria-hidden": "true" }, bar),
      element("span", {}, percent(found.probability)),
      element("span", {}, counted(found.distance, "bit", "bits")),
    ),
  );
}

function imageItem(image) {
  const title = image.label ?? image.name;
  const link = element(
    "a", { href: `#image-${image.row}`, title: image.name },
    element("img", { src: `images/${image.row}.jpg`, alt: "", loading: "lazy", width: 192, height: 192 }),
    element("span", {}, title),
  );
  if ("distance" in image) {
    link.append(element("span", { class: "far" }, counted(image.distance, "bit away", "bits away")));
  }
  return element("li", {}, link);
}

function say(status, error = "") {
  byId("status").textContent = status;
  byId("error").textContent = error;
}

function show(answer, title, url) {
  byId("result-title").textContent = title;
  byId("shown").src = url;
  if (shownUrl) URL.revokeObjectURL(shownUrl);
  shownUrl = url.startsWith("blob:") ? url : null;
  const nSet = [...answer.bits].filter((bit) => bit === "1").length;
  const text = `Its code: ${counted(answer.bits.length, "bit", "bits")}, ${nSet} set`;
  byId("code").replaceChildren(pattern(answer.bits, text));
  byId("code-text").textContent = text;
  byId("classes").replaceChildren(...answer.classes.map((found) => classItem(found, answer.bits)));
  byId("near").replaceChildren(...answer.images.map(imageItem));
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

// Asks, and shows the answer unless something else was asked meanwhile.
async function look(address, options, titleOf, url) {
  const mine = ++asked;
  say("Looking …");
  try {
    const answer = await ask(address, options);
    if (mine !== asked) return;
    show(answer, titleOf(answer), url);
    const [first] = answer.classes;
    say(`Nearest class: ${first.label}, ${counted(first.distance, "bit", "bits")} away.`);
  } catch (error) {
    if (mine !== asked) return;
    const lost = error instanceof TypeError;
    say("", lost ? "The server does not answer; is the command still running?" : error.message);
  }
}

function lookAtFile(file) {
  if (file.size > maxBytes) {
    asked++;
    say("", `${file.name} has ${(file.size / 2 ** 20).toFixed(1)} MB; at most ${maxBytes >> 20} MB are taken.`);
    return;
  }
  if (location.hash) history.pushState(null, "", location.pathname);
  const kind = file.type.startsWith("image/") ? file.type : "application/octet-stream";
  const options = { method: "POST", body: file, headers: { "Content-Type": kind } };
  look("api/look", options, () => file.name || "The pasted image", URL.createObjectURL(file));
}

function lookAtAddress() {
  const found = /^#image-(\d+)$/.exec(location.hash);
  if (!found) {
    asked++;
    byId("result").hidden = true;
    say("");
    return;
  }
  const title = (answer) => (answer.label === null ? answer.name : `${answer.label}: ${answer.name}`);
  look(`api/look/${found[1]}`, {}, title, `images/${found[1]}.jpg`);
}

function takeFiles(files) {
  const [file] = files;
  if (file) lookAtFile(file);
  else say("", "That was no file; drop or paste an image.");
}

byId("file").addEventListener("change", (event) => {
  if (event.target.files.length) takeFiles(event.target.files);
  event.target.value = ""; // so that the same file can be chosen again
});
document.addEventListener("paste", (event) => takeFiles(event.clipboardData.files));
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
window.addEventListener("hashchange", lookAtAddress);

ask("api/facts", {}).then(
  (facts) => {
    maxBytes = facts.max_bytes;
    byId("facts").textContent =
      `${counted(facts.classes, "class", "classes")} in ${counted(facts.bits, "bit", "bits")} · ` +
      `${counted(facts.images, "image", "images")} · ${facts.extractor} features`;
    byId("hint").textContent = `JPEG, PNG, WebP, GIF, BMP or TIFF, up to ${maxBytes >> 20}\u00a0MB`;
    byId("samples").replaceChildren(...facts.samples.map(imageItem));
    if (location.hash) lookAtAddress();
  },
  () => say("", "The server does not answer; is the command still running?"),
);
