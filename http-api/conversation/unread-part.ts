/**
 * Parts of messages that no model here reads: pictures, sounds, files, records of tools that a service runs. A short text stands in their place,
 * because agents send a conversation again with each request: one that is refused for a part could never go on.
 */
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';

/** A part of a message as text. */
export interface ReadPart {
  text: string;
  /** The type of a part that is not read; null: the text is the client's. */
  unread: string | null;
}

const IMAGE = '[an image was here; this model cannot see images]';
const FILE = '[a file was here; this model cannot read files]';
const SOUND = '[a sound was here; this model cannot hear sounds]';
const VIDEO = '[a video was here; this model cannot see videos]';

/** Texts by the types of all dialects. */
const TEXTS: Readonly<Record<string, string>> = {
  image: IMAGE,
  image_url: IMAGE,
  input_image: IMAGE,
  document: FILE,
  file: FILE,
  input_file: FILE,
  container_upload: FILE,
  audio: SOUND,
  input_audio: SOUND,
  video: VIDEO,
  video_url: VIDEO,
};

/** A type that may stand in a prompt. */
const PLAIN_TYPE = /^\w{1,40}$/;

export function readText(text: string): ReadPart {
  return { text, unread: null };
}

/** The text for a part of a type that is not read. */
export function unreadPart(type: string): ReadPart {
  const named = PLAIN_TYPE.test(type) ? `a part of the type ${type}` : 'a part of an unknown type';
  const text = Object.hasOwn(TEXTS, type) ? TEXTS[type] : undefined;
  return { text: text ?? `[${named} was here; this model cannot read it]`, unread: type };
}

/**
 * For the newest message, if a user wrote it: without a word in it there is nothing to answer. `field`: its place in the request.
 * Throws REQUEST_INVALID.
 */
export function requireWords(parts: readonly ReadPart[], field: string): void {
  const unread = parts.find((part) => part.unread !== null)?.unread ?? null;
  if (unread === null || parts.some((part) => part.unread === null && part.text.trim() !== '')) return;
  const shown = PLAIN_TYPE.test(unread) ? unread : 'another type';
  throw new OdmoeError(
    'REQUEST_INVALID',
    `${field}: it holds nothing that this model can read (${shown}); this model reads text, so say it in words`,
    { field },
  );
}
