import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { dialAddress } from '../../shared/wire/addresses.js';

/** A demo that HTTP clients can use. */
export interface Serving {
  /** Without a slash at the end. */
  url: string;
  /** The name by which clients ask for the model. */
  model: string;
  /** Requests need an API key. */
  needsKey: boolean;
}

const EXAMPLE = 'Tell me a story about a fox.';
/** By this a machine reaches itself, whichever of its addresses main listens on. */
const OWN_HOST = '127.0.0.1';

/** `httpAddress`: as main's status has it. Throws INTERNAL where main serves nobody, whom it was told to serve. */
export function servingAt(httpAddress: string, model: string, needsKey: boolean): Serving {
  if (httpAddress === '') throw new OdmoeError('INTERNAL', 'main of the demo serves no HTTP clients');
  return { url: `http://${dialAddress(httpAddress, OWN_HOST)}`, model, needsKey };
}

/** For people, on stdout: where it is, and a line to try it with. */
export function servingLines(serving: Serving): string[] {
  return [
    `${serving.model} is served at ${serving.url} until Ctrl-C. Open that in a browser, or try:`,
    curlLine(serving),
  ];
}

export function servingJson({ url, model }: Serving): Record<string, unknown> {
  return { url, model };
}

/** A command for a shell that gets an answer. */
export function curlLine({ url, model, needsKey }: Serving): string {
  const body = JSON.stringify({ model, messages: [{ role: 'user', content: EXAMPLE }] });
  const headers = ['content-type: application/json', ...(needsKey ? ['authorization: Bearer YOUR_KEY'] : [])];
  const words = headers.flatMap((header) => ['-H', quoted(header)]);
  return ['curl', `${url}/v1/chat/completions`, ...words, '-d', quoted(body)].join(' ');
}

/** As one word of a shell. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
