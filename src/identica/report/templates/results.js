// Without this script the links above jump to their part of the page; with it they show that part alone.
(() => {
  const parts = [...document.querySelectorAll(".part")];
  const links = [...document.querySelectorAll(".chips a")];
  const choose = () => {
    const wanted = decodeURIComponent(location.hash.slice(1));
    const chosen = parts.some((part) => part.id === wanted) ? wanted : "all";
    for (const part of parts) part.hidden = chosen !== "all" && part.id !== chosen;
    for (const link of links) link.setAttribute("aria-current", String(link.hash === "#" + chosen));
  };
  addEventListener("hashchange", choose);
  choose();
})();
