// Notes from the server: one answer without an end, resumed by the number of the first note that is missing.

const HEAD_BYTES = 40;
const MAGIC = 0x314b7255; // "UrK1"

/** Columns of a frame, where they lie in it. */
function columns(buffer, count) {
  let at = 0;
  const column = (type) => {
    const view = new type(buffer, at, count);
    at += count * type.BYTES_PER_ELEMENT;
    return view;
  };
  return {
    count,
    time: column(Float64Array), a: column(Float64Array), b: column(Float64Array),
    name: column(Uint32Array),
    kind: column(Uint16Array), session: column(Uint16Array), thread: column(Uint16Array),
  };
}

/** Bytes as they come, and frames as they are whole. */
class Frames {
  constructor(take) {
    this.take = take;
    this.bytes = new Uint8Array(0);
  }

  push(chunk) {
    const joined = new Uint8Array(this.bytes.length + chunk.length);
    joined.set(this.bytes);
    joined.set(chunk, this.bytes.length);
    this.bytes = joined;
    while (this.bytes.length >= HEAD_BYTES) {
      const head = new DataView(this.bytes.buffer, this.bytes.byteOffset, HEAD_BYTES);
      if (head.getUint32(0, true) !== MAGIC) throw new Error('this is no frame of notes');
      const count = head.getUint32(4, true);
      const namesSize = head.getUint32(28, true);
      const size = HEAD_BYTES + namesSize + Math.ceil((count * 34) / 8) * 8;
      if (this.bytes.length < size) return;
      const names = new TextDecoder().decode(this.bytes.subarray(HEAD_BYTES, HEAD_BYTES + namesSize));
      this.take({
        first: head.getFloat64(8, true),
        lost: head.getFloat64(16, true),
        nameFirst: head.getUint32(24, true),
        now: head.getFloat64(32, true),
        names: JSON.parse(names),
        rows: columns(this.bytes.slice(HEAD_BYTES + namesSize, size).buffer, count),
      });
      this.bytes = this.bytes.subarray(size);
    }
  }
}

/** Feeds a model until the server is gone, and begins again where it stopped when the server is back. */
export async function follow(model, changed) {
  for (let failures = 0; ; failures++) {
    try {
      const answer = await fetch(`/notes?from=${model.next}&names=${model.names.length}&lost=${model.missed}`);
      if (answer.status === 401) return changed('denied');
      if (!answer.ok) throw new Error(answer.statusText);
      const frames = new Frames((frame) => {
        model.take(frame);
        changed('live');
      });
      const reader = answer.body.getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        failures = 0;
        frames.push(value);
      }
    } catch {
      // Said below: the server is gone, or the connection was needed for another client.
    }
    changed('ended');
    await new Promise((resolve) => setTimeout(resolve, Math.min(5000, 250 * 2 ** failures)));
  }
}
