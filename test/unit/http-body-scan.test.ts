import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import fc from 'fast-check';
import { BODY_LIMITS, BODY_PLACES, type BodyLimits } from '../../http-api/requests/body-limits.js';
import { BodyScan } from '../../http-api/requests/body-scan.js';
import { BodyMemory, SMALL_BODY_BYTES } from '../../http-api/requests/body-memory.js';
import { BodyReader } from '../../http-api/requests/read-body.js';

/** The part of a body that the scan keeps. The body comes in pieces of these lengths, repeated to its end. */
function kept(text: string, lengths: readonly number[] = [], limits: BodyLimits = BODY_LIMITS): string {
  const scan = new BodyScan(limits);
  const bytes = Buffer.from(text);
  const pieces: Uint8Array[] = [];
  for (let at = 0, turn = 0; at < bytes.length; turn += 1) {
    const end = at + (lengths[turn % Math.max(1, lengths.length)] ?? bytes.length);
    pieces.push(...scan.take(bytes.subarray(at, end)));
    at = end;
  }
  return Buffer.concat(pieces).toString();
}

/** A body that has `inner` at a place such as "messages[].content". */
function bodyWith(path: string, inner: string): string {
  return path
    .replaceAll('[]', '.[]')
    .split('.')
    .reduceRight((within, step) => (step === '[]' ? `[${within}]` : `{${JSON.stringify(step)}: ${within}}`), inner);
}

const lengths = fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1, maxLength: 5 });

/** Values in a JSON text, as the limit counts them: entries of lists and objects; an empty one counts as one. */
function valuesOf(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0;
  const members = Object.values(value);
  return Math.max(1, members.length) + members.reduce<number>((sum, member) => sum + valuesOf(member), 0);
}

function depthOf(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0;
  return 1 + Math.max(0, ...Object.values(value).map(depthOf));
}

describe('the content of a body is counted while it arrives:', () => {
  it('in pieces of any size, and nothing is lost', () => {
    fc.assert(
      fc.property(fc.json({ maxDepth: 5 }), lengths, (text, pieces) => {
        fc.pre(!text.includes('__proto__'));
        assert.equal(kept(text, pieces), text);
        const [values, depth] = [valuesOf(JSON.parse(text)), depthOf(JSON.parse(text))];
        assert.equal(kept(text, pieces, { ...BODY_LIMITS, values, depth }), text);
        const refused = { code: 'REQUEST_TOO_LARGE' };
        if (values > 0) assert.throws(() => kept(text, pieces, { ...BODY_LIMITS, values: values - 1 }), refused);
        if (depth > 0)
          assert.throws(() => kept(text, pieces, { ...BODY_LIMITS, depth: depth - 1 }), /within one another/);
      }),
      { numRuns: 500 },
    );
  });

  it('any bytes are accepted, or refused with a message', () => {
    fc.assert(
      fc.property(
        fc.string({ unit: fc.constantFrom(...'{}[]",:\\ a1_'.split('')), maxLength: 40 }),
        lengths,
        (text, pieces) => {
          assert.equal(kept(text, pieces), text);
        },
      ),
      { numRuns: 1000 },
    );
  });

  for (const [path, { entries, nested, bytes }] of Object.entries(BODY_PLACES)) {
    const field = path.replaceAll('[]', '[0]');
    if (entries !== undefined) {
      it(`${path} takes ${entries} entries, and one more is refused by its name`, () => {
        const list = (count: number): string => `[${'0,'.repeat(count - 1)}0]`;
        const most = bodyWith(path, list(entries));
        if (entries < BODY_LIMITS.tokenIds) assert.equal(kept(most, [1000]), most);
        assert.throws(() => kept(bodyWith(path, list(entries + 1)), [1000]), {
          code: /REQUEST_INVALID|REQUEST_TOO_LARGE/,
          message: new RegExp(`at most ${entries} are taken|more than ${entries} token ids`),
        });
        if (entries >= BODY_LIMITS.tokenIds) return;
        assert.throws(() => kept(bodyWith(path, list(entries + 1))), { field });
        // The error comes before the end of the body, without a wait for the rest.
        assert.throws(() => kept(bodyWith(path, list(entries + 1)).slice(0, -3)), { field });
      });
    }
    if (nested !== undefined) {
      it(`${path} takes ${nested} lists, and one more is refused by its name`, () => {
        const lists = (count: number): string => `[${'[1],'.repeat(count - 1)}[1]]`;
        assert.equal(kept(bodyWith(path, lists(nested))), bodyWith(path, lists(nested)));
        assert.throws(() => kept(bodyWith(path, lists(nested + 1))), { code: 'REQUEST_INVALID', field });
      });
    }
    if (bytes !== undefined) {
      it(`${path} takes ${bytes} bytes, and more are refused by its name`, () => {
        const object = (length: number): string => `{"a":"${'x'.repeat(length)}"}`;
        assert.equal(kept(bodyWith(path, object(1000))), bodyWith(path, object(1000)));
        assert.throws(() => kept(bodyWith(path, object(bytes))), { code: 'REQUEST_INVALID', field });
      });
    }
  }

  it('the error names the entry of a nested list, and escaped names are recognized', () => {
    const calls = `{"tool_calls": [${'{},'.repeat(128)}{}]}`;
    const body = `{"a": [1], "\\u006dessages": [{"content": []}, {"content": "x"}, ${calls}]}`;
    assert.throws(() => kept(body, [3]), {
      field: 'messages[2].tool_calls',
      message: /129 entries or more; at most 128/,
    });
  });

  it('all values are counted together, and token ids apart from them', () => {
    const many = '0,'.repeat(BODY_LIMITS.values);
    assert.throws(() => kept(`{"x": [${many}0]}`, [65_536]), { code: 'REQUEST_TOO_LARGE', message: /131072 values/ });
    assert.equal(kept(`{"prompt": [${many}0]}`, [65_536]).length, many.length + 15);
    const texts = '"a",'.repeat(BODY_LIMITS.values);
    assert.throws(() => kept(`{"prompt": [${texts}"a"]}`), { code: 'REQUEST_TOO_LARGE', message: /values/ });
    assert.throws(() => kept('[],'.repeat(BODY_LIMITS.values)), { code: 'REQUEST_TOO_LARGE' });
  });

  it('only the beginning of a picture is stored, with whole characters and escapes, and all else is stored', () => {
    const pictures = Object.entries(BODY_PLACES).flatMap(([path, { isPicture }]) => (isPicture === true ? [path] : []));
    const data = fc.string({ unit: fc.constantFrom('A', '/', '\\', '"', 'é', '€', '\n', '+'), maxLength: 200 });
    fc.assert(
      fc.property(fc.constantFrom(...pictures), data, lengths, fc.string(), (path, picture, pieces, metadata) => {
        const body = (image: string): string =>
          `{"metadata": ${JSON.stringify(metadata)}, ${bodyWith(path, JSON.stringify(image)).slice(1)}`;
        const begin = picture.slice(0, 64).replace(/[\\"\n\u0080-\u{10ffff}].*$/su, '');
        assert.deepEqual(JSON.parse(kept(body(picture), pieces)), JSON.parse(body(begin)));
      }),
      { numRuns: 300 },
    );
    const long = 'x'.repeat(1000);
    const documents = Object.entries(BODY_PLACES).filter(([, { isPictureIfEncoded }]) => isPictureIfEncoded === true);
    assert.ok(documents.length > 1);
    for (const [path] of documents) {
      for (const pieces of [[7], [1000]]) {
        assert.equal(kept(bodyWith(path, `"${long}"`), pieces), bodyWith(path, `"${long.slice(0, 64)}"`), path);
        for (const words of [`One word. ${long}`, `x\\n${long}`, `é${long}`, `${long.slice(0, 63)} ${long}`]) {
          assert.equal(kept(bodyWith(path, `"${words}"`), pieces), bodyWith(path, `"${words}"`), words.slice(0, 70));
        }
      }
    }
    for (const path of [
      'messages[].content',
      'messages[].content[].text',
      'messages[].content[].input.data',
      'prompt',
    ]) {
      assert.equal(kept(bodyWith(path, JSON.stringify(long)), [7]), bodyWith(path, JSON.stringify(long)), path);
    }
  });
});

describe('a body that exceeds a limit', () => {
  it('is refused before it has fully arrived, and the rest is dropped', async () => {
    let asked = 0;
    const payload = new Readable({
      read() {
        asked += 1;
        const piece = asked === 1 ? `{"stop": [${'"x",'.repeat(70)}` : asked < 50 ? ' '.repeat(1000) : null;
        setImmediate(() => this.push(piece));
      },
    });
    await assert.rejects(new BodyReader().read(payload, {}, 1_000_000), { code: 'REQUEST_INVALID', field: 'stop' });
    assert.ok(asked < 50, `${asked} pieces were read before the refusal`);
    await new Promise((resolve) => payload.once('end', resolve));
  });

  it('is refused for its bytes, with a declared length or without', async () => {
    const refused = { code: 'REQUEST_TOO_LARGE', message: /more than 10 bytes/ };
    await assert.rejects(
      new BodyReader().read(Readable.from([Buffer.from('{"a":')]), { 'content-length': '11' }, 10),
      refused,
    );
    await assert.rejects(
      new BodyReader().read(Readable.from([Buffer.from('{"a":'), Buffer.from('"xxxxxxx"}')]), {}, 10),
      refused,
    );
    assert.deepEqual(await new BodyReader().read(Readable.from([Buffer.from('{"a"'), Buffer.from(':1}')]), {}, 10), {
      a: 1,
    });
  });

  it('is answered where it breaks off, and nothing waits for it', async () => {
    const payload = new Readable({ read: () => undefined });
    const read = new BodyReader().read(payload, {}, 10);
    payload.destroy();
    await assert.rejects(read, { code: 'REQUEST_INVALID', message: /did not come whole/ });
  });

  it('together with others is asked to retry, while small bodies always pass', async () => {
    const reader = new BodyReader(new BodyMemory(SMALL_BODY_BYTES));
    const opened = (): Readable => new Readable({ read: () => undefined });
    const text = (bytes: number): Buffer => Buffer.from(`"${'x'.repeat(bytes - 2)}"`);
    const [first, second] = [opened(), opened()];
    const reading = reader.read(first, {}, 1_000_000);
    first.push(text(2 * SMALL_BODY_BYTES));
    await new Promise((resolve) => setImmediate(resolve));
    const refused = assert.rejects(reader.read(second, {}, 1_000_000), { code: 'QUEUE_FULL', message: /ask again/ });
    second.push(text(2 * SMALL_BODY_BYTES));
    await refused;
    const small = text(SMALL_BODY_BYTES);
    assert.equal(await reader.read(Readable.from([small]), {}, 1_000_000), JSON.parse(small.toString()));
    first.push(null);
    await reading;
    for (let turn = 0; turn < 3; turn += 1) {
      const large = text(2 * SMALL_BODY_BYTES);
      assert.equal(await reader.read(Readable.from([large]), {}, 1_000_000), JSON.parse(large.toString()));
      await assert.rejects(reader.read(Readable.from([large.subarray(1)]), {}, 1_000_000), { code: 'REQUEST_INVALID' });
    }
  });
});
