import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import { promptText } from '../../cli/client/prompt-text.js';

const inputOf = (...parts: string[]): AsyncIterable<Buffer> => Readable.from(parts.map((part) => Buffer.from(part)));
const untouched: AsyncIterable<Buffer> = { [Symbol.asyncIterator]: () => assert.fail('standard input is not read') };

describe('the prompt of a command', () => {
  it('is TEXT, and standard input in place of "-" without the end of its last line', async () => {
    assert.equal(await promptText('a fox', false, untouched), 'a fox');
    assert.equal(await promptText('-', false, inputOf('a f', 'ox\nand an owl\n')), 'a fox\nand an owl');
    assert.equal(await promptText('-', true, inputOf('a fox\r\n')), 'a fox');
    assert.equal(await promptText('-', false, inputOf()), '');
  });

  it('is standard input where TEXT is left out, unless a person types there or the prompt comes in another way', async () => {
    assert.equal(await promptText(undefined, false, inputOf('a fox\n')), 'a fox');
    assert.equal(await promptText(undefined, false, inputOf()), undefined);
    assert.equal(await promptText(undefined, true, untouched), undefined);
    assert.equal(await promptText(undefined, false, { ...untouched, isTTY: true }), undefined);
  });

  it('has a bound', async () => {
    await assert.rejects(promptText('-', false, inputOf(...Array.from({ length: 3 }, () => 'x'.repeat(2 ** 20)))), {
      code: 'USAGE',
      message: /longer than 2097152 bytes/,
    });
  });
});
