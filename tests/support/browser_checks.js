// The texts of a page whose contrast with their background is below 4.5 (WCAG 2.2, 1.4.3): contrast, text, and colors.
(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (color) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    const [red, green, blue, alpha] = canvas.getImageData(0, 0, 1, 1).data;
    return [red, green, blue, alpha / 255];
  };
  const over = (top, below) => top.slice(0, 3).map((each, at) => each * top[3] + below[at] * (1 - top[3]));
  const luminance = (color) => {
    const [red, green, blue] = color.map((each) => {
      const share = each / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const background = (element) => {
    const layers = [];
    for (let each = element; each; each = each.parentElement) {
      const color = rgba(getComputedStyle(each).backgroundColor);
      layers.push(color);
      if (color[3] === 1) break;
    }
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
  };
  const images = [...document.querySelectorAll("svg image")].map((each) => each.getBoundingClientRect());
  const isOnImage = (box) => images.some((image) =>
    box.left >= image.left - 1 && box.right <= image.right + 1 && box.top >= image.top - 1 && box.bottom <= image.bottom + 1);
  const found = new Map();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const text = walker.currentNode.textContent.trim();
    const box = element.getBoundingClientRect();
    const isShown = element.checkVisibility({ opacityProperty: true, visibilityProperty: true });
    const inPicture = element.closest("svg");
    if (!text || !isShown || !box.width || ["SCRIPT", "STYLE", "NOSCRIPT"].includes(element.tagName)) continue;
    // Cells of matrices have colors of their own, chosen with their texts.
    if (inPicture && isOnImage(box)) continue;
    const style = getComputedStyle(element);
    const behind = background(inPicture ? inPicture.parentElement : element);
    const color = over(rgba(inPicture ? style.fill : style.color), behind);
    const [high, low] = [luminance(color), luminance(behind)].sort((one, other) => other - one);
    const contrast = (high + 0.05) / (low + 0.05);
    const colors = `${color.map(Math.round)} on ${behind.map(Math.round)}`;
    if (contrast < 4.5) found.set(colors, [contrast, text.slice(0, 60), colors, element.tagName]);
  }
  return [...found.values()];
})()
