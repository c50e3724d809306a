import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { BODY_PLACES, type BodyLimits, type PlaceLimits } from './body-limits.js';
import { ENCODED_KEPT_BYTES, isEncodedByte } from './encoded-data.js';

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const COLON = 0x3a;
const OPEN_LIST = 0x5b;
const CLOSE_LIST = 0x5d;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;

/** Most characters of a name that are read: the longest name of BODY_PLACES, with every letter as an escape. */
const NAME_LIMIT_BYTES = 192;
/** A key that changes the prototype of objects, if code copies it without care. */
const PROTOTYPE = '__proto__';

/** A place of a body that has limits, or leads to a place with limits. */
interface Place {
  name: string;
  limits: PlaceLimits;
  properties: Map<string, Place>;
  element: Place | null;
}

const ROOT = placesOf(BODY_PLACES);

function placesOf(table: Readonly<Record<string, PlaceLimits>>): Place {
  const root: Place = { name: '', limits: {}, properties: new Map(), element: null };
  for (const [path, limits] of Object.entries(table)) {
    let place = root;
    for (const step of path.replaceAll('[]', '.[]').split('.')) {
      const name = step === '[]' ? `${place.name}[]` : [place.name, step].filter((part) => part !== '').join('.');
      const known: Place | null = step === '[]' ? place.element : (place.properties.get(step) ?? null);
      const next = known ?? { name, limits: {}, properties: new Map<string, Place>(), element: null };
      if (step === '[]') place.element = next;
      else place.properties.set(step, next);
      place = next;
    }
    place.limits = limits;
  }
  return root;
}

/** A list or object that has begun and not ended. */
interface Frame {
  isObject: boolean;
  /** null: no place inside has limits. */
  place: Place | null;
  /** The place of the property or element that comes now. */
  current: Place | null;
  entries: number;
  nested: number;
  beginsAt: number;
}

/**
 * Counts the contents of a body's JSON while it arrives, byte by byte, and builds nothing. `take` returns the bytes of a chunk that must be
 * stored: all except the data of pictures. For bytes that are no JSON, any result is possible. Bytes that pass are small enough to be parsed.
 */
export class BodyScan {
  private readonly frames: Frame[] = [];
  private seen = 0;
  private values = 0;
  private tokenIds = 0;
  private text: 'none' | 'value' | 'name' = 'none';
  private isEscaped = false;
  private name = '';
  /** State of the present text: whether it is a picture, how many of its bytes are stored so far, and whether the rest is dropped. */
  private isPicture = false;
  /** True: it is a picture as long as its bytes are those of encoded data. */
  private mayBeText = false;
  private pictureBytes = 0;
  private isCut = false;
  private awaitsName = false;
  /** True: there was a text at the present place. */
  private hasText = false;

  constructor(private readonly limits: BodyLimits) {}

  /** Throws REQUEST_TOO_LARGE, and REQUEST_INVALID with the field. */
  take(arrived: Uint8Array): Uint8Array[] {
    const passed: Uint8Array[] = [];
    let passedFrom = 0;
    if (this.seen + arrived.length > this.limits.bytes)
      throw tooLarge(`the body has more than ${this.limits.bytes} bytes`);
    let at = 0;
    while (at < arrived.length) {
      if (this.text === 'none') {
        this.structure(arrived[at] ?? 0, this.seen + at);
        at += 1;
        continue;
      }
      const dropFrom = this.isPicture ? this.endOfPassed(arrived, at) : null;
      at = this.readText(arrived, at);
      if (dropFrom !== null && dropFrom < at) {
        passed.push(arrived.subarray(passedFrom, dropFrom));
        passedFrom = at;
      }
      if (at < arrived.length) {
        this.endText();
        at += 1;
      }
    }
    this.seen += arrived.length;
    passed.push(arrived.subarray(passedFrom));
    return passed;
  }

  /** Returns the end of the stored part of a picture, or of the bytes where it proves to be a text. A character or escape is never divided. */
  private endOfPassed(arrived: Uint8Array, start: number): number {
    let at = start;
    for (; !this.isCut && at < arrived.length; at += 1, this.pictureBytes += 1) {
      const byte = arrived[at] ?? 0;
      if (byte === QUOTE) return at;
      if (this.mayBeText && this.pictureBytes < ENCODED_KEPT_BYTES && !isEncodedByte(byte)) {
        this.isPicture = false;
        return arrived.length;
      }
      this.isCut = byte === BACKSLASH || byte >= 0x80 || this.pictureBytes >= ENCODED_KEPT_BYTES;
      if (this.isCut) return at;
    }
    return at;
  }

  /** Returns the end of the text, or the end of the bytes that have arrived if the text continues. */
  private readText(arrived: Uint8Array, start: number): number {
    const isName = this.text === 'name';
    let at = start;
    for (; at < arrived.length; at += 1) {
      const byte = arrived[at] ?? 0;
      if (this.isEscaped) this.isEscaped = false;
      else if (byte === QUOTE) break;
      else if (byte === BACKSLASH) this.isEscaped = true;
      if (isName && this.name.length < NAME_LIMIT_BYTES) this.name += String.fromCharCode(byte);
    }
    return at;
  }

  private endText(): void {
    if (this.text === 'name') {
      const name = unescaped(this.name);
      if (name === PROTOTYPE) throw invalid(null, `the body has a key "${PROTOTYPE}", which is not taken`);
      const frame = this.frames.at(-1);
      if (frame !== undefined) frame.current = frame.place?.properties.get(name) ?? null;
    }
    this.text = 'none';
    this.isPicture = false;
  }

  private structure(byte: number, at: number): void {
    switch (byte) {
      case QUOTE:
        this.text = this.awaitsName ? 'name' : 'value';
        this.hasText = true;
        this.name = '';
        this.pictureBytes = 0;
        this.isCut = false;
        this.beginPicture(this.text === 'value' ? this.frames.at(-1)?.current?.limits : undefined);
        break;
      case COMMA:
        this.comma();
        break;
      case COLON:
        this.awaitsName = false;
        break;
      case OPEN_LIST:
      case OPEN_OBJECT:
        this.open(byte === OPEN_OBJECT, at);
        break;
      case CLOSE_LIST:
      case CLOSE_OBJECT:
        this.requireBytes(this.frames.at(-1), at);
        this.frames.pop();
        this.awaitsName = false;
        break;
    }
  }

  private beginPicture({ isPicture = false, isPictureIfEncoded = false }: PlaceLimits = {}): void {
    this.isPicture = isPicture || isPictureIfEncoded;
    this.mayBeText = isPictureIfEncoded;
  }

  private open(isObject: boolean, at: number): void {
    const { frames } = this;
    const outer = frames.at(-1);
    if (frames.length >= this.limits.depth) {
      throw invalid(null, `the body has more than ${this.limits.depth} lists and objects within one another`);
    }
    if (outer !== undefined) {
      outer.nested += 1;
      this.requireFew(outer, outer.nested, outer.place?.limits.nested);
    }
    const place = outer === undefined ? ROOT : outer.current;
    const current = isObject ? null : (place?.element ?? null);
    frames.push({ isObject, place, current, entries: 1, nested: 0, beginsAt: at });
    this.awaitsName = isObject;
    this.hasText = false;
    this.addValue(frames.at(-1));
  }

  private comma(): void {
    const frame = this.frames.at(-1);
    if (frame === undefined) {
      this.addValue(frame);
      return;
    }
    frame.entries += 1;
    this.requireFew(frame, frame.entries, frame.place?.limits.entries);
    this.awaitsName = frame.isObject;
    this.addValue(frame);
    this.hasText = false;
  }

  private addValue(frame: Frame | undefined): void {
    if (frame?.place?.limits.areTokenIds === true && !frame.isObject && !this.hasText) {
      this.tokenIds += 1;
      if (this.tokenIds > this.limits.tokenIds) {
        throw tooLarge(`the body has more than ${this.limits.tokenIds} token ids`);
      }
      return;
    }
    this.values += 1;
    if (this.values > this.limits.values) throw tooLarge(`the body has more than ${this.limits.values} values`);
  }

  private requireFew(frame: Frame, entries: number, limit: number | undefined): void {
    if (limit === undefined || entries <= limit) return;
    const field = this.fieldOf(frame);
    throw invalid(field, `${field}: it has ${entries} entries or more; at most ${limit} are taken`);
  }

  private requireBytes(frame: Frame | undefined, at: number): void {
    const limit = frame?.place?.limits.bytes;
    if (frame === undefined || limit === undefined || at - frame.beginsAt <= limit) return;
    const field = this.fieldOf(frame);
    throw invalid(field, `${field}: it has more than ${limit} bytes; send a smaller one`);
  }

  /** For example "messages[3].tool_calls". */
  private fieldOf(frame: Frame): string {
    const indexes = this.frames.slice(0, this.frames.indexOf(frame)).filter(({ isObject }) => !isObject);
    let list = 0;
    return (frame.place?.name ?? '').replace(/\[\]/g, () => `[${(indexes[list++]?.entries ?? 1) - 1}]`);
  }
}

/** A name after JSON decoding. A name that cannot be decoded counts as unknown. */
function unescaped(name: string): string {
  if (!name.includes('\\')) return name;
  try {
    return String(JSON.parse(`"${name}"`));
  } catch {
    return name;
  }
}

function tooLarge(what: string): OdmoeError {
  return new OdmoeError('REQUEST_TOO_LARGE', `${what}; send less`);
}

function invalid(field: string | null, message: string): OdmoeError {
  return new OdmoeError('REQUEST_INVALID', message, field === null ? {} : { field });
}
