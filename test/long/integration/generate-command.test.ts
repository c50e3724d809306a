import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { closeSync, openSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { packageRoot } from '../../../shared/base/files/package-root.js';

const demoModel = join(packageRoot(), 'models', 'demo');
const fixture = join(packageRoot(), 'test', 'fixtures', 'mixtral');
const RUN_TIMEOUT_MS = 60_000;

interface Run {
  status: number | null;
  stdout: string;
  stderr: string;
}

/** Runs the command as a user does. `readBytes`: close its stdout after so much. */
async function odmoe(args: readonly string[], readBytes = Infinity): Promise<Run> {
  const child = spawn(process.execPath, [join(packageRoot(), 'bin', 'odmoe'), ...args], { timeout: RUN_TIMEOUT_MS });
  // Without TEXT the prompt comes by standard input.
  child.stdin.end();
  let stdout = '';
  let stderr = '';
  child.stdout.on('data', (data: Buffer) => {
    stdout += data.toString('utf8');
    if (stdout.length >= readBytes) child.stdout.destroy();
  });
  child.stderr.on('data', (data: Buffer) => (stderr += data.toString('utf8')));
  const status = await new Promise<number | null>((resolve, reject) => {
    child.on('error', reject);
    child.on('close', resolve);
  });
  return { status, stdout, stderr };
}

interface Answer {
  text: string;
  prompt_token_ids: number[];
  token_ids: number[];
  finish_reason: string;
  arithmetic: string;
  logprobs?: { token_id: number; logprob: number; top: { token_id: number; logprob: number }[] }[];
  timing: Record<string, number>;
  sep: { recall: number; activated: number; predicted_correctly: number } | null;
  reloads: number;
  nodes: Record<string, unknown>[];
}

describe('odmoe generate', () => {
  const { references } = JSON.parse(readFileSync(join(demoModel, 'reference.json'), 'utf8')) as {
    references: { prompt: string; prompt_token_ids: number[]; token_ids: number[]; text: string }[];
  };
  const sum = references.find((reference) => reference.prompt.startsWith('What is'));
  assert.ok(sum !== undefined);

  it('reports that its output cannot be written', () => {
    const command = [join(packageRoot(), 'bin', 'odmoe'), 'generate', demoModel, sum.prompt];
    const full = openSync('/dev/full', 'w');
    const { status, stderr } = spawnSync(process.execPath, command, {
      stdio: ['ignore', full, 'pipe'],
      encoding: 'utf8',
      timeout: RUN_TIMEOUT_MS,
    });
    closeSync(full);
    assert.equal(status, 3);
    assert.match(stderr, /^odmoe: standard output cannot be written \(ENOSPC[^\n]*\)\n$/);
  });

  it('prints the answer', async () => {
    assert.deepEqual(await odmoe(['generate', demoModel, sum.prompt]), {
      status: 0,
      stdout: `${sum.text}\n`,
      stderr: '',
    });
  });

  it('with --json prints one object with the documented keys', async () => {
    const run = await odmoe(['generate', demoModel, sum.prompt, '--json', '--logprobs', '3']);
    assert.equal(run.status, 0, run.stderr);
    assert.equal(run.stdout.trim().split('\n').length, 1);
    const answer = JSON.parse(run.stdout) as Answer;
    assert.equal(answer.text, sum.text);
    assert.deepEqual(answer.prompt_token_ids, sum.prompt_token_ids);
    assert.deepEqual(answer.token_ids, sum.token_ids);
    assert.equal(answer.finish_reason, 'stop');
    assert.equal(answer.arithmetic, 'exact');
    assert.equal(answer.sep, null);
    assert.equal(answer.reloads, 0);
    assert.deepEqual(
      ['ttft_ms', 'tpot_ms', 'decode_tokens_per_s', 'output_tokens_per_s'].filter(
        (key) => !((answer.timing[key] ?? 0) > 0),
      ),
      [],
    );
    assert.deepEqual(
      answer.logprobs?.map((entry) => [entry.token_id, entry.top.length, entry.top[0]?.logprob]),
      answer.logprobs?.map((entry) => [entry.token_id, 3, entry.logprob]),
    );
    assert.equal(answer.nodes.length, 1);
    assert.ok(Number(answer.nodes[0]?.['device_memory_high_water_bytes']) > 13e6);
    assert.ok(Number(answer.nodes[0]?.['weight_bytes']) > 13e6);
  });

  it('with --shadow reports the recall and changes no token', async () => {
    const run = await odmoe(['generate', demoModel, sum.prompt, '--json', '--shadow', 'nf4']);
    const answer = JSON.parse(run.stdout) as Answer;
    assert.deepEqual(answer.token_ids, sum.token_ids);
    assert.equal(answer.sep?.activated, (sum.token_ids.length - 1) * 16);
    assert.equal(answer.logprobs, undefined);
  });

  it('takes token ids for a model without a tokenizer', async () => {
    const run = await odmoe(['generate', fixture, '--prompt-token-ids', '5,6', '--max-tokens', '4', '--json']);
    const answer = JSON.parse(run.stdout) as Answer;
    assert.equal(answer.token_ids.length, 4);
    assert.equal(answer.text, '');
    assert.equal(answer.finish_reason, 'length');
  });

  it('ends quietly when its reader leaves', async () => {
    const run = await odmoe(['generate', demoModel, 'Tell me a story.', '--ignore-eos', '--max-tokens', '2000'], 4);
    assert.equal(run.status, 0);
    assert.equal(run.stderr, '');
  });

  const failures: [string, string[], number, RegExp][] = [
    ['no prompt', ['generate', demoModel], 2, /TEXT, by standard input, or as --prompt-token-ids/],
    ['an unknown flag', ['generate', demoModel, 'a', '--colour'], 2, /unknown option '--colour'/],
    ['an unknown command', ['conjure'], 2, /unknown command 'conjure'/],
    ['a value out of range', ['generate', demoModel, 'a', '--top-p', '3'], 2, /--top-p.*'3'.*from 0 to 1/],
    ['a prompt too long', ['generate', demoModel, 'a '.repeat(3000)], 2, /holds 2048/],
    ['more threads than can be', ['generate', demoModel, 'a', '--threads', '100000'], 2, /from 0 to 1024/],
    ['an address that is none', ['prompt', 'a', '--main', '127.0.0.1:99999'], 2, /HOST:PORT/],
    ['no such slices', ['generate', demoModel, 'a', '--quality', 'sliced(8,3)'], 2, /no experts are sliced as \(8,3\)/],
    ['a checkpoint without slices', ['generate', demoModel, 'a', '--quality', 'sliced(8,4)'], 2, /is a checkpoint/],
    ['no model', ['generate', join(demoModel, 'nowhere'), 'a'], 3, /no model/],
    ['text without a tokenizer', ['generate', fixture, 'a', '--max-tokens', '4'], 3, /--prompt-token-ids/],
    ['nobody there', ['prompt', 'a', '--main', '127.0.0.1:1'], 3, /127\.0\.0\.1:1/],
  ];
  for (const [what, args, status, words] of failures) {
    it(`${what}: exit status ${status}, a message on stderr, and it as an object on stdout where a command was named`, async () => {
      const run = await odmoe([...args, '--json']);
      assert.equal(run.status, status, run.stderr);
      assert.match(run.stderr, words);
      assert.match(run.stderr, /^odmoe: /);
      if (args[0] === 'conjure') assert.equal(run.stdout, '');
      else assert.match((JSON.parse(run.stdout) as { error: { message: string } }).error.message, words);
    });
  }

  it('exits with the code of the failure', async () => {
    const { stderr } = await odmoe(['generate', join(demoModel, 'nowhere'), 'a']);
    assert.match(stderr, /^odmoe: .* \[MODEL_NOT_FOUND\]\n$/);
  });

  it('prints its version and lists daemons and benchmarks in its help', async () => {
    const { version } = JSON.parse(readFileSync(join(packageRoot(), 'package.json'), 'utf8')) as { version: string };
    assert.deepEqual(await odmoe(['--version']), { status: 0, stdout: `${version}\n`, stderr: '' });
    const help = await odmoe(['--help']);
    assert.equal(help.status, 0);
    assert.match(help.stdout, /main\|shadow\|worker/);
    for (const args of [
      ['help', 'worker'],
      ['bench', '--help'],
      ['help', 'bench'],
      ['prompt', '--help'],
    ]) {
      const run = await odmoe(args);
      assert.equal(run.status, 0, run.stderr);
      assert.match(run.stdout, /Usage: odmoe/);
    }
  });
});
