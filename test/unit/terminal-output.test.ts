import assert from 'node:assert/strict';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { MARKS, TextOutput } from '../../shared/base/text/text-output.js';
import { sourcesOf } from './product-sources.js';

const HOSTILE = 'sky\u001b]52;c;cm0gLXJm\u0007\u009b2J\u202e\n';
const SHOWN = 'sky\\x1b]52;c;cm0gLXJm\\x07\\x9b2J\\u202e\n';
/** Modules whose code may run in a process of the product; `bench` beside it. */
const MODULES = [
  'shared',
  'native',
  'packs',
  'engine',
  'http-api',
  'main-node',
  'shadow-node',
  'worker-node',
  'simulator',
  'cli',
  'bench',
];
const DOORS = [join('shared', 'base', 'text')];

function outputTo(isTTY: boolean): { output: TextOutput; written: () => string } {
  let text = '';
  const stream = new Writable({
    decodeStrings: false,
    write: (chunk: string, _encoding, done) => {
      text += chunk;
      done();
    },
  });
  const output = new TextOutput(() => Object.assign(stream, { isTTY }) as unknown as NodeJS.WriteStream);
  return { output, written: () => text };
}

describe('the writer to the terminal', () => {
  it('cleans every text, for a terminal and for a pipe that ends at one', () => {
    for (const isTTY of [true, false]) {
      const { output, written } = outputTo(isTTY);
      output.write(HOSTILE);
      output.asStream().write(HOSTILE);
      assert.equal(written(), SHOWN + SHOWN);
    }
  });

  it('keeps each character of an answer in a file, and cleans it on a terminal', () => {
    const file = outputTo(false);
    file.output.writeAnswer(HOSTILE);
    assert.equal(file.written(), HOSTILE);
    const terminal = outputTo(true);
    for (const piece of ['a\u001b', '[2J', '\u009b', '31m']) terminal.output.writeAnswer(piece);
    assert.equal(terminal.written(), 'a\\x1b[2J\\x9b31m');
  });

  it('adds our own marks on a terminal only, and drops no character of a text', () => {
    const terminal = outputTo(true);
    terminal.output.write(MARKS.dim, 'x\u001b[22m', MARKS.notDim);
    assert.equal(terminal.written(), '\u001b[2mx\\x1b[22m\u001b[22m');
    const pipe = outputTo(false);
    pipe.output.write(MARKS.dim, 'x', MARKS.notDim);
    assert.equal(pipe.written(), 'x');
  });

  for (const module of MODULES) {
    it(`is the only one that ${module} has`, () => {
      const sources = sourcesOf([module]).filter(({ path }) => !DOORS.some((door) => path.startsWith(door)));
      const pathsOf = (code: RegExp): string[] => sources.flatMap(({ path, text }) => (code.test(text) ? [path] : []));
      const past = pathsOf(/\bprocess\.(stdout|stderr)\b|\bconsole\.|\{[^}]*\bstd(out|err)\b[^}]*\} = process\b/);
      assert.deepEqual(past, [], 'these write past shared/base/text/text-output.ts');
      const unclean = pathsOf(/(standardOutput|standardError)\.write\([^;]*JSON\.stringify\(/);
      assert.deepEqual(unclean, [], 'these print JSON that printableJson has not made: cleaned it may be none');
    });
  }
});
