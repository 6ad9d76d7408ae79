// Short words for what the other scripts do with the page's elements.

const root = document.documentElement;
const chosen = new Set();
const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
const byId = (id) => document.getElementById(id);
const element = (tag, text = "", fields = {}) => Object.assign(document.createElement(tag), { textContent: text }, fields);
const say = (words) => { byId("status").textContent = words; };
