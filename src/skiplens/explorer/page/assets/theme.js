// The look before anything is drawn: what was chosen here, else what the system says.
document.documentElement.dataset.theme = sessionStorage.getItem("look")
  || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
