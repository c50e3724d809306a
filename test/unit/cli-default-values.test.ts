import assert from 'node:assert/strict';
import { Option } from 'commander';
import { defaultWords, withReadableDefault, createProgram } from '../../cli/client/run-command-line.js';

const list = (text: string): string[] => text.split(',');

describe('default values in --help', () => {
  it('are printed as a user types them', () => {
    assert.equal(defaultWords(['zstd', 'raw']), 'zstd,raw');
    assert.equal(defaultWords([0.1, 2]), '0.1,2');
    assert.equal(defaultWords('huffman'), 'huffman');
    assert.equal(defaultWords(0), '0');
    for (const nothing of [[], [null], '', undefined, null, { a: 1 }]) assert.equal(defaultWords(nothing), null);
  });

  it('are printed once, in every command of a program', () => {
    const program = createProgram('odmoe test');
    const command = program
      .command('measure')
      .argument('[text]', 'the prompt', 'Tell me')
      .option('--codec <list>', 'codecs', list, ['zstd', 'raw'])
      .option('--stop <text>', 'several times', list, [])
      .option('--resident <list>', 'formats (default: as shipped)', list, ['bf16']);
    const help = command.helpInformation();
    assert.match(help, /codecs \(default: zstd,raw\)/);
    assert.match(help, /several times\n/);
    assert.match(help, /formats \(default: as shipped\)\n/);
    assert.match(help, /the prompt \(default: Tell me\)/);
  });

  it('do not change the values that the command uses', () => {
    const option = new Option('--codec <list>', 'codecs').default(['zstd']);
    assert.equal(withReadableDefault(option).defaultValueDescription, 'zstd');
    assert.equal(option.defaultValueDescription, undefined);
    assert.deepEqual(option.defaultValue, ['zstd']);
  });
});
