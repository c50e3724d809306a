import assert from 'node:assert/strict';
import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { readFileSync, statSync } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { packageRoot } from '../../../shared/base/files/package-root.js';
import { endCluster, ProcessCluster } from '../../integration/harness/process-cluster.js';
import { waitUntil } from '../../integration/harness/wait-until.js';

const ODMOE = join(packageRoot(), 'bin', 'odmoe');
const DEMO_MODEL = join(packageRoot(), 'models', 'demo');
const RUN_TIMEOUT_MS = 60_000;
const CONTROL_C = '\u0003';
const CONTROL_D = '\u0004';
/** Chat writes it before each prompt, when the terminal gives it the keys one by one. */
const PASTE_MARKS_ON = '\u001b[?2004h';
const PASTE_MARKS_OFF = '\u001b[?2004l';

const { references } = JSON.parse(readFileSync(join(DEMO_MODEL, 'reference.json'), 'utf8')) as {
  references: { prompt: string; text: string }[];
};
const { eos_token_id: END_TOKEN } = JSON.parse(readFileSync(join(DEMO_MODEL, 'generation_config.json'), 'utf8')) as {
  eos_token_id: number;
};
const sum = references.find(({ prompt }) => prompt.startsWith('What is'));
assert.ok(sum !== undefined);

/** `odmoe chat` with these lines on standard input, which is a pipe. */
async function chat(
  args: readonly string[],
  ...lines: string[]
): Promise<{ status: number | null; stdout: string; stderr: string }> {
  const child = spawn(process.execPath, [ODMOE, 'chat', ...args], { timeout: RUN_TIMEOUT_MS });
  const run = { stdout: '', stderr: '' };
  child.stdout.on('data', (data: Buffer) => (run.stdout += data.toString()));
  child.stderr.on('data', (data: Buffer) => (run.stderr += data.toString()));
  child.stdin.end(lines.map((line) => `${line}\n`).join(''));
  const status = await new Promise<number | null>((resolve, reject) => child.on('error', reject).on('close', resolve));
  return { status, ...run };
}

describe('odmoe chat from a pipe', () => {
  let directory = '';

  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'odmoe-chat-'));
  });

  afterEach(() => rm(directory, { recursive: true }));

  it('answers each line, with all earlier ones, and saves the conversation', async () => {
    const path = join(directory, 'talk.jsonl');
    const first = await chat(
      [DEMO_MODEL, '--system', 'Be brief.', '--max-tokens', '30'],
      sum.prompt,
      'And now?',
      `/save ${path}`,
    );
    assert.equal(first.status, 0, first.stderr);
    const saved = (await readFile(path, 'utf8'))
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as Record<string, string>);
    assert.deepEqual(
      saved.map(({ role }) => role),
      ['system', 'user', 'assistant', 'user', 'assistant'],
    );
    assert.equal(`${saved[2]?.['content']}\n${saved[4]?.['content']}\n`, first.stdout);
    // The same conversation asked again in one go gives the same answer: it was sent whole.
    const again = await chat([DEMO_MODEL, '--load', path, '--max-tokens', '30'], '/retry');
    assert.equal(again.stdout, `${saved[4]?.['content']}\n`);
  });

  it('exits with the status of the failure', async () => {
    const wrong = await chat([DEMO_MODEL], '/sset');
    assert.equal(wrong.status, 2);
    assert.match(wrong.stderr, /did you mean \/set\?.*\[USAGE\]/);
    const long = await chat([DEMO_MODEL], 'fox '.repeat(3000), 'not asked any more');
    assert.equal(long.status, 2);
    assert.equal(long.stdout, '');
    assert.match(long.stderr, /\[PROMPT_TOO_LONG\]/);
    assert.equal((await chat([DEMO_MODEL, '--main', '127.0.0.1:1'])).status, 2);
    assert.equal((await chat(['--main', '127.0.0.1:1', '--threads', '1'])).status, 2);
    assert.equal((await chat(['--main', '127.0.0.1:1'])).status, 3);
    assert.equal((await chat([DEMO_MODEL, '--load', join(directory, 'none')])).status, 2);
  });
});

describe('odmoe chat with a cluster', () => {
  let cluster: ProcessCluster | null = null;

  afterEach(async function () {
    await endCluster(this, cluster);
    cluster = null;
  });

  it('prints the same as one process', async () => {
    cluster = await ProcessCluster.start('demo', 2, false);
    const lines = [sum.prompt, 'Tell me a story about a fox.'];
    const flags = ['--max-tokens', '20', '--temperature', '1', '--seed', '5'];
    const there = await chat(['--main', cluster.main.address, ...flags], ...lines);
    const here = await chat([DEMO_MODEL, ...flags], ...lines);
    assert.equal(there.status, 0, there.stderr);
    assert.equal(there.stdout, here.stdout);
    assert.ok(there.stdout.length > 20);
  });
});

describe('odmoe chat on a terminal', () => {
  let child: ChildProcess | null = null;
  let screen = '';
  let state = '';

  before(function () {
    if (spawnSync('script', ['-qec', 'true', '/dev/null']).status === 0) return;
    process.stderr.write('      skipped: there is no program "script" (of util-linux) that gives a terminal\n');
    this.skip();
  });

  beforeEach(async () => {
    state = await mkdtemp(join(tmpdir(), 'odmoe-chat-'));
    screen = '';
  });

  afterEach(async () => {
    child?.kill('SIGKILL');
    child = null;
    await rm(state, { recursive: true });
  });

  function start(...args: string[]): { type: (keys: string) => void; ended: Promise<number | null> } {
    const words = [process.execPath, ODMOE, 'chat', ...args].map((word) => `'${word}'`).join(' ');
    // A shell that stays beside the command would die of the Ctrl-C itself: dash ends with 130 then.
    const running = spawn('script', ['-qec', `exec ${words}`, '/dev/null'], {
      env: { ...process.env, XDG_STATE_HOME: state },
    });
    child = running;
    running.stdout.on('data', (data: Buffer) => (screen += data.toString()));
    const ended = new Promise<number | null>((resolve) => running.on('close', resolve));
    return { type: (keys) => running.stdin.write(keys), ended };
  }

  const shows = (text: string, times = 1): Promise<void> =>
    waitUntil(
      () => `the screen shows ${JSON.stringify(text)} ${times} times:\n${screen}`,
      () => screen.split(text).length > times,
    );
  /** Keys typed earlier would be taken by the terminal itself, which edits lines in another way. */
  const prompts = (times: number): Promise<void> => shows(PASTE_MARKS_ON, times);

  it('edits lines, takes pastes, and keeps a history', async () => {
    const { type, ended } = start(DEMO_MODEL);
    await prompts(1);
    assert.ok(screen.includes('/help lists the commands'), screen);
    type(`${sum.prompt.replace('What', 'Whaat')}${'\u001b[D'.repeat(sum.prompt.length - 2)}\u007f\r`);
    await shows(sum.text);
    await prompts(2);
    assert.ok(screen.includes('tokens (stop)'), screen);
    type('\u001b[200~Tell me\ra story.\u001b[201~\r');
    await prompts(3);
    assert.equal(screen.split('tokens (stop)').length, 3, screen);
    type('/set temperature 1000\r');
    await prompts(4);
    assert.ok(screen.includes('temperature         1000'), screen);
    type('/save talk-of-terminal\r'.replace('talk', join(state, 'talk')));
    await shows('saved 2 turns');
    await prompts(5);
    type(CONTROL_D);
    assert.equal(await ended, 0);
    const saved = await readFile(join(state, 'talk-of-terminal'), 'utf8');
    assert.ok(saved.includes(JSON.stringify(sum.prompt)) && saved.includes('"Tell me\\na story."'), saved);
    const history = join(state, 'odmoe', 'chat-history');
    assert.equal(statSync(history).mode & 0o777, 0o600);
    assert.ok((await readFile(history, 'utf8')).startsWith(`${sum.prompt}\nTell me\n`));
  });

  it('stops an answer by Ctrl-C and goes on', async () => {
    // The model can never end this answer, so that it fills the whole context: thousands of words are to come when it is stopped.
    const { type, ended } = start(DEMO_MODEL, '--logit-bias', `${END_TOKEN}=-100`);
    await prompts(1);
    type('Go on!\r');
    await waitUntil('the answer has begun', () => (screen.split(PASTE_MARKS_OFF)[1]?.trim().length ?? 0) > 20);
    type(CONTROL_C);
    await shows('what came stays in the conversation');
    await prompts(2);
    assert.ok(!screen.includes('tokens ('), `no answer came to its own end:\n${screen}`);
    const path = join(state, 'stopped');
    type(`/save ${path}\r`);
    await shows('saved 1 turn');
    await prompts(3);
    type(CONTROL_D);
    assert.equal(await ended, 0);
    const [asked, answer] = (await readFile(path, 'utf8')).trim().split('\n');
    assert.ok(asked?.includes('"Go on!"') === true && answer !== undefined, 'what came was saved');
  });

  it('passes no escape sequence of a model to the terminal, from chat and generate', () => {
    // Token 31 is the byte that begins escape sequences.
    const flags = `'${DEMO_MODEL}' --logit-bias 31=100 --max-tokens 3 2>/dev/null`;
    for (const command of [`generate ${flags} hello`, `chat ${flags}`]) {
      const line = `echo hello | '${process.execPath}' '${ODMOE}' ${command}`;
      const run = (program: string, args: string[]): string =>
        spawnSync(program, args, { encoding: 'utf8', timeout: RUN_TIMEOUT_MS }).stdout;
      assert.equal(run('sh', ['-c', line]), '\u001b\u001b\u001b\n', 'a pipe gets what the model says');
      assert.equal(run('script', ['-qec', line, '/dev/null']), '\\x1b\\x1b\\x1b\r\n', 'a terminal shows it as text');
    }
  });
});
