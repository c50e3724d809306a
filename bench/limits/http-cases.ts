/** Hostile requests of HTTP clients. */
import { connect, type Socket } from 'node:net';
import { runtime } from '../../cli/client/process-runtime.js';
import { BODY_LIMITS } from '../../http-api/requests/body-limits.js';
import { BODIES_LIMIT_BYTES } from '../../http-api/requests/body-memory.js';
import { SERVER_BOUNDS } from '../../http-api/http-server.js';
import { MEGABYTE_BYTES } from '../../shared/wire/limits.js';
import type { CaseAnswer, LimitsCase } from './limits-case.js';
import { GROWTH_LIMIT_BYTES } from './verdict.js';

const CHAT = '/v1/chat/completions';
const QUESTION = [{ role: 'user', content: 'hello' }];
/** A little less than the largest body, because other JSON surrounds it. */
const BODY_BYTES = BODY_LIMITS.bytes - 64 * 1024;
const MESSAGES = 300_000;
const DEPTH = 4_000_000;
/** The longest schema text is 1 MiB. */
const SCHEMA_BYTES = MEGABYTE_BYTES - 4096;
const SLOW_CONNECTIONS = 500;
const LARGE_BODIES = 40;

const REFUSED: readonly number[] = [400, 413, 429, 503];
/** The model is at fault here, not the client. */
const TEMPLATE_REFUSED: readonly number[] = [503];

/** Sends a body unchanged and returns the answer. `statuses`: the expected ones. */
export async function send(
  url: string,
  path: string,
  body: string | Buffer,
  statuses = REFUSED,
  signal?: AbortSignal,
): Promise<CaseAnswer> {
  const answer = await fetch(`${url}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body,
    ...(signal && { signal }),
  });
  const text = await answer.text();
  const code = answer.status < 400 ? '' : (/"code":\s*"(\w+)"/.exec(text)?.[1] ?? '');
  return { text: `${answer.status} ${code}`.trim(), expected: statuses.includes(answer.status) };
}

function chatCase(name: string, about: string, body: () => string, statuses = REFUSED): LimitsCase {
  return {
    name,
    about,
    target: 'main',
    run: ({ url }, signal) => send(url, CHAT, body(), statuses, signal),
  };
}

const chat = (fields: object): string => JSON.stringify({ messages: QUESTION, max_tokens: 1, ...fields });
const letters = (count: number): string => 'x'.repeat(count);
const responseFormat = (schema: object): object => ({
  response_format: { type: 'json_schema', json_schema: { name: 'answer', schema } },
});

export const HTTP_CASES: readonly LimitsCase[] = [
  chatCase('http-messages', `${MESSAGES} messages of a letter, 9 MB`, () =>
    JSON.stringify({ messages: Array.from({ length: MESSAGES }, () => ({ role: 'user', content: 'x' })) }),
  ),
  chatCase('http-text', 'one message of 16 MiB', () =>
    chat({ messages: [{ role: 'user', content: 'word '.repeat(BODY_BYTES / 5) }] }),
  ),
  chatCase('http-letters', 'one message of 16 MiB without a space', () =>
    chat({ messages: [{ role: 'user', content: letters(BODY_BYTES) }] }),
  ),
  chatCase('http-tools', 'tools of together 16 MiB', () => {
    const tool = { type: 'function', function: { name: 'f', description: letters(16 * 1024 - 128), parameters: {} } };
    return chat({ tools: Array.from({ length: 1000 }, () => tool) });
  }),
  chatCase('http-image', 'a picture of 16 MiB', () => {
    const picture = { type: 'image_url', image_url: { url: `data:image/png;base64,${letters(BODY_BYTES)}` } };
    return chat({ messages: [{ role: 'user', content: [picture] }] });
  }),
  chatCase('http-depth', `${DEPTH} lists within one another`, () => '['.repeat(DEPTH)),
  chatCase(
    'http-values',
    'a list of 8 million numbers in a field that nobody knows',
    () => `{"messages":[],"x":[${'1,'.repeat(7_900_000)}1]}`,
  ),
  chatCase('http-escapes', 'one text of 16 MiB of escapes', () => `{"messages":"${'\\u0041'.repeat(BODY_BYTES / 6)}"}`),
  chatCase('schema-pattern', 'a schema with a pattern of 1 MiB', () =>
    chat(responseFormat({ type: 'string', pattern: `^(${'a|b'.repeat(SCHEMA_BYTES / 3)})$` })),
  ),
  chatCase('schema-repeats', 'a pattern of repeats within repeats', () =>
    chat(responseFormat({ type: 'string', pattern: '^((((a{1,100}){1,100}){1,100}){1,100}){1,100}$' })),
  ),
  chatCase(
    'schema-length',
    'a text of at most 1,000,000,000 characters',
    () => chat(responseFormat({ type: 'string', minLength: 999_999_999, maxLength: 1_000_000_000 })),
    [200, ...REFUSED],
  ),
  chatCase(
    'schema-enum',
    'an enum of 1 MiB',
    () => chat(responseFormat({ enum: Array.from({ length: 80_000 }, (_, at) => `v${100_000 + at}`) })),
    [200, ...REFUSED],
  ),
  chatCase(
    'schema-properties',
    'an object of 20,000 properties',
    () => {
      const properties: Record<string, object> = {};
      for (let at = 0; at < 20_000; at += 1) properties[`p${at}`] = { type: 'string', minLength: at % 7 };
      return chat(responseFormat({ type: 'object', properties }));
    },
    [200, ...REFUSED],
  ),
  chatCase(
    'schema-references',
    'references that double at each of 60 steps',
    () => {
      const steps = Array.from({ length: 60 }, (_, at) => {
        const next = { $ref: `#/$defs/s${at + 1}` };
        return [`s${at}`, { type: 'object', properties: { a: next, b: next }, required: ['a', 'b'] }] as const;
      });
      const $defs = { ...Object.fromEntries(steps), s60: { type: 'string' } };
      return chat(responseFormat({ $ref: '#/$defs/s0', $defs }));
    },
    [200, ...REFUSED],
  ),
  {
    name: 'tokenize',
    about: '1 MiB to /tokenize beside small prompts',
    target: 'main',
    bounds: { processorMs: 5000, growthBytes: 4 * GROWTH_LIMIT_BYTES },
    run: ({ url }, signal) =>
      send(url, '/tokenize', JSON.stringify({ content: letters(MEGABYTE_BYTES) }), [200, ...REFUSED], signal),
  },
  {
    name: 'template-doubling',
    about: 'a chat template that doubles a text for ever',
    target: 'main',
    template:
      "{% set ns = namespace(t='xxxxxxxx') %}{% for i in range(64) %}{% set ns.t = ns.t ~ ns.t %}{% endfor %}{{ ns.t }}",
    run: ({ url }, signal) => send(url, CHAT, chat({}), TEMPLATE_REFUSED, signal),
  },
  {
    name: 'template-loops',
    about: 'a chat template of loops within loops',
    target: 'main',
    template: `${'{% for i in range(1000) %}'.repeat(5)}x${'{% endfor %}'.repeat(5)}`,
    // Small requests wait for it once: the template's abilities are found before the first conversation.
    bounds: { processorMs: 15_000, besideMs: 60_000 },
    run: ({ url }, signal) => send(url, CHAT, chat({}), TEMPLATE_REFUSED, signal),
  },
  {
    name: 'http-slow',
    about: `${SLOW_CONNECTIONS} connections that send a letter of a header each second`,
    target: 'main',
    run: ({ url }) => slowHeaders(url),
  },
  {
    name: 'http-bodies',
    about: `${LARGE_BODIES} bodies of 15 MiB at a time, none of which ends`,
    target: 'main',
    bounds: { growthBytes: BODIES_LIMIT_BYTES + GROWTH_LIMIT_BYTES },
    run: ({ url }) => unendedBodies(url),
  },
];

/** The number of connections that main has closed, and its answers. */
async function slowHeaders(url: string): Promise<CaseAnswer> {
  const clients = Array.from({ length: SLOW_CONNECTIONS }, () => new SlowClient(url));
  for (const client of clients) client.write(`POST ${CHAT} HTTP/1.1\r\nhost: 127.0.0.1\r\nx-slow: `);
  const beganMs = performance.now();
  const limitMs = SERVER_BOUNDS.headersMs + 3 * SERVER_BOUNDS.checkMs;
  while (performance.now() - beganMs < limitMs && clients.some(({ isOpen }) => isOpen)) {
    for (const client of clients) client.write('x');
    await runtime.sleep(1000);
  }
  return caseAnswerOf(clients, SLOW_CONNECTIONS);
}

async function unendedBodies(url: string): Promise<CaseAnswer> {
  const clients = Array.from({ length: LARGE_BODIES }, () => new SlowClient(url));
  const body = Buffer.alloc(15 * MEGABYTE_BYTES, 'x');
  body.write('{"prompt":"');
  const headers = `content-type: application/json\r\ncontent-length: ${BODY_LIMITS.bytes - 1}`;
  await Promise.all(
    clients.map((client) => {
      client.write(`POST ${CHAT} HTTP/1.1\r\nhost: 127.0.0.1\r\n${headers}\r\n\r\n`);
      return client.writeAll(body);
    }),
  );
  await runtime.sleep(1000);
  const answered = clients.filter(({ received }) => received !== '').length;
  const answer = caseAnswerOf(clients, 0);
  // `fitting` bodies fit into the limit of all bodies; the others are refused.
  const fitting = Math.floor(BODIES_LIMIT_BYTES / body.length);
  return { text: answer.text, expected: answered >= LARGE_BODIES - fitting - 1, messages: LARGE_BODIES };
}

function caseAnswerOf(clients: readonly SlowClient[], closedAtLeast: number): CaseAnswer {
  const closed = clients.filter(({ isOpen }) => !isOpen).length;
  const statuses = clients
    .map(({ received }) => /^HTTP\/1.1 (\d+)/.exec(received)?.[1])
    .filter((one) => one !== undefined);
  const first = statuses[0] ?? 'nothing';
  for (const client of clients) client.end();
  const text = `${closed} of ${clients.length} closed, ${statuses.length} with ${first}`;
  return { text, expected: closed >= closedAtLeast, messages: clients.length };
}

class SlowClient {
  isOpen = true;
  received = '';
  private readonly socket: Socket;

  constructor(url: string) {
    const { hostname, port } = new URL(url);
    this.socket = connect(Number(port), hostname);
    this.socket.on('error', () => undefined);
    this.socket.on('close', () => (this.isOpen = false));
    this.socket.setEncoding('latin1').on('data', (text: string) => (this.received += text));
  }

  write(text: string): void {
    if (this.socket.writable) this.socket.write(text);
  }

  /** Resolves when all bytes have been sent, or the connection is closed. */
  writeAll(bytes: Buffer): Promise<void> {
    return new Promise((resolve) => {
      this.socket.on('close', () => resolve());
      if (this.socket.writable) this.socket.write(bytes, () => resolve());
      else resolve();
    });
  }

  end(): void {
    this.socket.destroy();
  }
}
