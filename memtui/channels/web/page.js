// Keys go to the terminal at once, without a click into it.
window.addEventListener("load", () => document.querySelector(".xterm-helper-textarea").focus());
