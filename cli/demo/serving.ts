import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { pageLink } from '../../shared/wire/page-link.js';
import { dialAddress } from '../../shared/wire/addresses.js';

/** A demo that HTTP clients can use. */
export interface Serving {
  /** Does not end with a slash. */
  url: string;
  /** The model's name in requests of clients. */
  model: string;
  /** True: requests need an API key. */
  needsKey: boolean;
  /** The key, where the demo has made it; null or left out: the user has it. */
  key?: string | null;
}

const EXAMPLE = 'Tell me a story about a fox.';
/** This host reaches main on this machine, for any address at which main listens. */
const OWN_HOST = '127.0.0.1';

/** `httpAddress`: from main's status. Throws INTERNAL if main does not serve HTTP clients, although it was configured to. */
export function servingAt(httpAddress: string, model: string, needsKey: boolean): Serving {
  if (httpAddress === '') throw new OdmoeError('INTERNAL', 'main of the demo serves no HTTP clients');
  return { url: `http://${dialAddress(httpAddress, OWN_HOST)}`, model, needsKey };
}

/** Lines for people on stdout: the URL, and commands to try it. `mainAddress`: "host:port" at which commands ask main. */
export function servingLines(serving: Serving, mainAddress: string): string[] {
  return [
    `${serving.model} is served at ${serving.url} until Ctrl-C. Open ${opened(serving)} in a browser, or try:`,
    curlLine(serving),
    `odmoe chat --main ${mainAddress}`,
    `odmoe status --main ${mainAddress}`,
    `odmoe top --main ${mainAddress}`,
  ];
}

export function servingJson({ url, model, key = null }: Serving, mainAddress: string): Record<string, unknown> {
  return { url, model, main: mainAddress, ...(key !== null && { key }) };
}

function opened({ url, key = null }: Serving): string {
  return key === null ? 'that' : pageLink(url, key);
}

/** A shell command that requests an answer. */
export function curlLine({ url, model, needsKey, key = null }: Serving): string {
  const body = JSON.stringify({ model, messages: [{ role: 'user', content: EXAMPLE }] });
  const headers = [
    'content-type: application/json',
    ...(needsKey ? [`authorization: Bearer ${key ?? 'YOUR_KEY'}`] : []),
  ];
  const words = headers.flatMap((header) => ['-H', quoted(header)]);
  return ['curl', `${url}/v1/chat/completions`, ...words, '-d', quoted(body)].join(' ');
}

/** Quotes a text as one word of a shell. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
