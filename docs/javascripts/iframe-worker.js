/* Search in pages opened from files, for which browsers start no workers: a hidden frame runs the script that searches. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.body.appendChild(document.createElement("iframe"));
      frame.hidden = true;
      this.frame = frame.contentWindow;
      this.loaded = new Promise((done) => {
        // Writing a page keeps the frame's origin, which is that of this page; a file would have one of its own.
        this.frame.document.open();
        this.frame.document.write("<body></body>");
        this.frame.document.close();
        this.frame.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
        const script = this.frame.document.createElement("script");
        script.src = url;
        script.onload = done;
        this.frame.document.body.appendChild(script);
      });
    }

    postMessage(data) {
      this.loaded.then(() => this.frame.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
