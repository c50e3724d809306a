import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { benchProgram } from '../../bench/bench-program.js';
import { MeasuredRun } from '../../bench/history/measured-run.js';
import { acceptRecord, commitOf } from '../../bench/history/record-run.js';
import { commandLine, recordedFigures, parseRunLines } from '../../bench/history/run-line.js';
import { createProgram } from '../../cli/client/run-command-line.js';

const FIGURES = { hops: [{ name: '1 KB', median_us: 84.123456789, round_trips: 12_345_678 }] };
/** They write files. */
const WITHOUT_FIGURES = ['deepen', 'synth', 'tables', 'trace'];

describe('the history of benchmark runs', () => {
  let root: string;
  beforeEach(() => {
    root = mkdtempSync(join(tmpdir(), 'odmoe-history-'));
  });
  afterEach(() => rmSync(root, { recursive: true }));

  const historyFile = (): string => join(root, 'bench', 'history', 'sample.jsonl');

  /** Runs a benchmark named "sample"; returns what it printed. */
  async function bench(...flags: string[]): Promise<string> {
    const printed: string[] = [];
    const run = new MeasuredRun((text) => printed.push(text));
    const program = createProgram('odmoe bench');
    program.command('sample').action(() => run.print(FIGURES, false, () => 'a table\n'));
    acceptRecord(program, run, { root, args: ['bench', 'sample', ...flags] });
    try {
      await program.parseAsync(['sample', ...flags], { from: 'user' });
    } catch (thrown) {
      assert.deepEqual(printed, [], 'the run has begun, though its figures cannot be kept');
      throw thrown;
    }
    return printed.join('');
  }

  it('gets one line of each run with --record: commit, date, machine, command and figures', async () => {
    assert.equal(await bench('--record'), 'a table\n');
    await bench('--record');
    const lines = parseRunLines(readFileSync(historyFile(), 'utf8'), 'sample.jsonl');
    assert.equal(lines.length, 2);
    for (const { commit, date, machine, command, figures } of lines) {
      assert.equal(commit, 'unknown');
      assert.ok(Math.abs(Date.parse(date ?? '') - Date.now()) < 3_600_000, date ?? 'no date');
      assert.ok((machine?.cores ?? 0) > 0 && (machine?.memory_gib ?? 0) > 0);
      assert.equal(command, 'odmoe bench sample --record');
      assert.deepEqual(figures, { hops: [{ name: '1 KB', median_us: 84.1235, round_trips: 12_345_678 }] });
    }
  });

  it('gets nothing of a run without --record', async () => {
    assert.equal(await bench(), 'a table\n');
    assert.equal(existsSync(historyFile()), false);
  });

  it('names its file when it cannot be written, before the run begins', async () => {
    mkdirSync(historyFile(), { recursive: true });
    await assert.rejects(bench('--record'), { code: 'STORAGE_FAILED', message: /sample\.jsonl: .*directory/s });
    rmSync(join(root, 'bench'), { recursive: true });
    writeFileSync(join(root, 'bench'), '');
    await assert.rejects(bench('--record'), { code: 'STORAGE_FAILED', message: /sample\.jsonl: .*cannot be written/s });
  });

  it('takes runs of every benchmark that prints figures', () => {
    const takes = benchProgram({ root, args: [] }).commands.filter(({ options }) =>
      options.some(({ long }) => long === '--record'),
    );
    const all = benchProgram({ root, args: [] }).commands.map((command) => command.name());
    assert.deepEqual(
      takes.map((command) => command.name()),
      all.filter((name) => !WITHOUT_FIGURES.includes(name)),
    );
    assert.ok(takes.length > 0);
  });

  it('notes the commit, and whether files other than its own have changed since', () => {
    const git = (...args: string[]): void => {
      const { status, stderr } = spawnSync('git', ['-C', root, ...args], { encoding: 'utf8' });
      assert.equal(status, 0, stderr);
    };
    assert.equal(commitOf(root), 'unknown');
    mkdirSync(join(root, 'bench', 'history'), { recursive: true });
    const files = [join(root, 'source'), historyFile()];
    for (const file of files) writeFileSync(file, 'before\n');
    git('init', '--quiet');
    git('add', '--all');
    git('-c', 'user.name=a', '-c', 'user.email=a@b', 'commit', '--quiet', '--message', 'first');
    const clean = commitOf(root);
    assert.match(clean, /^[0-9a-f]{7,}$/);
    writeFileSync(historyFile(), 'another run\n');
    assert.equal(commitOf(root), clean);
    writeFileSync(join(root, 'source'), 'after\n');
    assert.equal(commitOf(root), `${clean}+changes`);
    assert.equal(commitOf(join(root, 'bench')), 'unknown', 'the checkout of another project around the installation');
  });

  it('holds figures without long series of bare numbers', () => {
    const series = Array.from({ length: 33 }, (_, index) => index);
    assert.deepEqual(recordedFigures({ recall: 0.99, by_iteration: series, by_quarter: [1, null, 0.5, 0.25] }), {
      recall: 0.99,
      by_quarter: [1, null, 0.5, 0.25],
    });
  });

  it('holds commands that a shell takes again', () => {
    assert.equal(commandLine(['odmoe', 'bench', 'hop', '--seconds', '4']), 'odmoe bench hop --seconds 4');
    const words = ['a b', "it's", '$HOME', ''];
    const { stdout } = spawnSync('sh', ['-c', `printf '%s\\n' ${commandLine(words)}`], { encoding: 'utf8' });
    assert.equal(stdout, `${words.join('\n')}\n`);
  });

  it('refuses a line that is no run, by its number', () => {
    const good = JSON.stringify({
      commit: null,
      date: '2026-11-20',
      machine: null,
      command: null,
      note: null,
      figures: {},
    });
    assert.equal(parseRunLines(`${good}\n${good}\n`, 'hop.jsonl').length, 2);
    const changes = [
      ['2026-11-20', 'yesterday'],
      ['"note"', '"notes"'],
      ['"note"', '"extra":1,"note"'],
    ] as const;
    const bad = ['{}', 'no JSON', '', ...changes.map(([from, to]) => good.replace(from, to))];
    for (const line of bad) {
      assert.throws(() => parseRunLines(`${good}\n${line}\n`, 'hop.jsonl'), /hop\.jsonl, line 2, is no measured run/);
    }
  });
});
