/** The one place that recognizes what downloads leave in place of a model's files: pointers of Git LFS, and what web servers answer in their place. */
import { OdmoeError } from '../errors/odmoe-error.js';
import type { ErrorCode } from '../errors/registry.js';

/** Bytes at the begin of a file from which a wrong download is recognized. */
export const EXAMINED_BYTES = 16 * 1024;
/** Most characters of a page's title, or of a server's words, in a message. */
const QUOTED_LIMIT = 120;

/** Git leaves a pointer in place of a large file if Git LFS was not installed to fetch it. */
const LFS_POINTER = /^version https:\/\/git-lfs\.github\.com\//;
const MARKUP_PREFACE = /^(?:\s|<\?xml[^>]*>|<!--[^]*?-->)*/;
const HTML = /^<(?:!doctype\s+html|html|head|body)[\s>]/i;
const TITLE = /<title[^>]*>([^<]*)/i;
/** Object stores answer in XML. */
const XML_ERROR = /^<Error>[^]*?<Message>([^<]*)/;
const JSON_ERROR = /^\s*\{\s*"error"\s*:\s*"([^"]*)"/;
/** Hugging Face's answers to a download without the right to it, or of a file that it does not have. */
const TEXT_ERROR =
  /^(?:Access to model \S+ is |Invalid username or password|(?:Entry|Repository|Revision) not found\b)[^\n]*/i;
const ASKS_TO_SIGN_IN =
  /<title[^>]*>[^<]*(?:sign|log)[ -]?in\b|action="[^"]*\/login\b|\b(?:restricted|gated|authenticated|forbidden|access ?denied|invalid username|agree to share)\b/i;

const PULL = 'run `git lfs pull` in its repository, or download the file itself';
const SIGN_IN =
  'the server wants to know who asks: accept the terms on the page of the model, log in (`hf auth login`) and download the file again';
const DOWNLOAD_THE_FILE =
  'download the file itself, with `hf download` or from its address with /resolve/ in place of /blob/';

/**
 * Refuses a file of a model in whose place stands a pointer of Git LFS, or a web server's page or error. The message says which, and what to do.
 * @param bytes the file, or its begin of any length
 * @throws the error with this code
 */
export function refuseWrongDownload(bytes: Uint8Array, path: string, code: ErrorCode): void {
  // The decoder leaves out a byte order mark.
  const text = new TextDecoder().decode(bytes.subarray(0, EXAMINED_BYTES));
  const found = LFS_POINTER.test(text) ? { what: 'a pointer of Git LFS', advice: PULL } : serverAnswer(text);
  if (found === null) return;
  throw new OdmoeError(code, `${path}: ${found.what} stands in place of the file; ${found.advice}`);
}

function serverAnswer(text: string): { what: string; advice: string } | null {
  const markup = text.replace(MARKUP_PREFACE, '');
  const advice = ASKS_TO_SIGN_IN.test(text) ? SIGN_IN : DOWNLOAD_THE_FILE;
  if (HTML.test(markup)) return { what: `an HTML page${quoted(TITLE.exec(markup)?.[1])}`, advice };
  const words = XML_ERROR.exec(markup)?.[1] ?? JSON_ERROR.exec(text)?.[1] ?? TEXT_ERROR.exec(text)?.[0];
  return words === undefined ? null : { what: `an error of the web server${quoted(words)}`, advice };
}

function quoted(words = ''): string {
  const line = words.replaceAll(/\s+/g, ' ').trim();
  return line === '' ? '' : ` ("${line.slice(0, QUOTED_LIMIT)}")`;
}
