// Asks again while a person types, and keeps the state in the address. Without it the form works by itself.
// The server sends the answers as a tree, [tag, attributes, child ...]; text is only ever set as text.
const form = document.getElementById("form");
const TAGS = new Set(["div", "p", "ol", "ul", "li", "a", "span", "b", "small", "mark", "main", "aside", "details",
  "summary", "section", "h2", "pre"]);
const ATTRIBUTES = new Set(["class", "id", "href", "role", "open", "aria-live", "aria-label", "data-add", "data-field"]);
const WAIT_MS = 150;

function built(tree) {
  if (typeof tree === "string") return document.createTextNode(tree);
  const [tag, attributes, ...children] = tree;
  if (!TAGS.has(tag)) throw new Error(`unexpected element ${tag}`);
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    const leavesSite = name === "href" && !(value.startsWith("/") && !value.startsWith("//"));
    if (ATTRIBUTES.has(name) && !leavesSite) element.setAttribute(name, value);
  }
  element.append(...children.map(built));
  return element;
}

function asked() {
  const fields = [...new FormData(form)].filter(([name, value]) => value !== "" && !(name === "k" && value === "10"));
  return new URLSearchParams(fields).toString();
}

function showFault() {
  const fault = document.querySelector(".fault[data-field]");
  for (const name of ["q", "where"]) {
    const field = document.getElementById(name);
    const isWrong = fault !== null && fault.dataset.field === name;
    if (isWrong) {
      field.setAttribute("aria-invalid", "true");
      field.setAttribute("aria-describedby", "fault");
    } else {
      field.removeAttribute("aria-describedby");
      field.removeAttribute("aria-invalid");
    }
  }
}

let running = null;
let shown = null; // the index and the generation that are on the page

async function ask(push) {
  const query = asked();
  const address = query === "" ? "/" : `/?${query}`;
  if (push) history.pushState(null, "", address);
  else history.replaceState(null, "", address);
  running?.abort();
  const own = (running = new AbortController());
  const main = document.getElementById("found");
  const slow = setTimeout(() => main?.setAttribute("aria-busy", "true"), 200);
  try {
    const answer = await fetch(`/results.json?${query}`, { signal: own.signal });
    const { tree, generation, error } = await answer.json();
    const results = document.getElementById("results");
    if (error) fail(error.message);
    else {
      const open = results.querySelector("details")?.open ?? matchMedia("(min-width: 54rem)").matches;
      const next = built(tree);
      if (next.querySelector("details")) next.querySelector("details").open = open;
      results.replaceWith(next);
      const index = form.elements.index?.value ?? "";
      if (shown?.generation && shown.index === index && shown.generation !== generation) {
        note("The index was updated: these are its new answers.");
      }
      shown = { index, generation };
      showFault();
    }
  } catch (fault) {
    if (fault.name !== "AbortError") fail("The service does not answer. Is it still running?");
  } finally {
    clearTimeout(slow);
    document.getElementById("found")?.removeAttribute("aria-busy");
  }
}

function note(text) {
  const line = document.createElement("p");
  line.className = "reloaded";
  line.setAttribute("role", "status");
  line.textContent = text;
  document.getElementById("found").prepend(line);
}

function fail(text) {
  const line = document.createElement("div");
  line.className = "fault";
  line.setAttribute("role", "alert");
  line.textContent = text;
  document.getElementById("found").replaceChildren(line);
}

if (form) {
  let timer = null;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    clearTimeout(timer);
    ask(true);
  });
  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => ask(false), WAIT_MS);
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-add]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    form.elements.where.value = new URL(link.href).searchParams.get("where") ?? "";
    ask(true);
  });
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.matches("input, select, textarea");
    if (event.key === "/" && !isTyping) {
      event.preventDefault();
      form.elements.q.focus();
    }
  });
  addEventListener("popstate", () => {
    const params = new URLSearchParams(location.search);
    for (const field of form.elements) {
      if (field.name) field.value = params.get(field.name) ?? (field.name === "k" ? "10" : field.name === "index" ? field.value : "");
    }
    ask(false);
  });
  showFault();
  const details = document.querySelector("aside details");
  if (details) details.open = matchMedia("(min-width: 54rem)").matches;
}
document.getElementById("found")?.classList.contains("chunk") && document.getElementById("found").scrollIntoView({ block: "center" });
