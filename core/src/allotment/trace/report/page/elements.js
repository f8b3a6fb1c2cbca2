// Elements of the page. What comes from a trace gets into the page as text and in no other way.

/** Return a new element with attributes and content; strings become text. Attributes that are functions listen. */
export function element(tag, attributes = {}, ...content) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value != null) made.setAttribute(name, value);
  }
  made.append(...content);
  return made;
}

/** Return the element of the page with an id. */
export function byId(id) {
  return document.getElementById(id);
}

/** Return the value of a colour of the style sheet, as it is in the present scheme. */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** Return a small square of a colour of the style sheet. */
export function swatch(name) {
  const made = element("span", { class: "swatch", "aria-hidden": "true" });
  made.style.background = colour(name);
  return made;
}

/** Fill a select element with options, each a value and a text. */
export function fillSelect(select, options, chosen) {
  select.replaceChildren(
    ...options.map(([value, text]) => element("option", { value, selected: value === chosen }, text)),
  );
}

/** Return a function that runs another at most once a frame, however often it is called. */
export function oncePerFrame(run) {
  let waiting = false;
  return () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      run();
    });
  };
}
