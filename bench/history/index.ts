import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Command } from 'commander';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { writeFailure } from '../../shared/base/files/storage-error.js';
import { standardOutput } from '../../shared/base/text/text-output.js';
import { renewTables } from './results-tables.js';
import { parseRunLines, type RunLine } from './run-line.js';

/** Adds `odmoe bench tables`. */
export function registerBenchTables(bench: Command, root: string): void {
  bench
    .command('tables')
    .description('make the tables of docs/results.md again, from the runs in bench/history')
    .addHelpText(
      'after',
      '\nThe comment above each table says which run it shows: a file of bench/history and a line of it. A new run shows when a person\n' +
        'names its line there. bench/history/results-tables.ts has the words of that comment.',
    )
    .action(() => {
      const path = resultsPath(root);
      const document = readText(path);
      const renewed = renewTables(document, (name) => runLinesAt(root, name));
      if (renewed === document) {
        standardOutput.write(`${path}: its tables are those of bench/history already\n`);
        return;
      }
      try {
        writeFileSync(path, renewed);
      } catch (thrown) {
        throw writeFailure(thrown, path, null);
      }
      standardOutput.write(`${path}: its tables have been made again\n`);
    });
}

export function resultsPath(root: string): string {
  return join(root, 'docs', 'results.md');
}

/** @throws USAGE */
export function runLinesAt(root: string, name: string): RunLine[] {
  const path = join(root, 'bench', 'history', `${name}.jsonl`);
  return parseRunLines(readText(path), path);
}

function readText(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (thrown) {
    const reason = thrown instanceof Error ? thrown.message : String(thrown);
    throw new OdmoeError(
      'USAGE',
      `${path} cannot be read (${reason}): the tables are made in a clone of the repository`,
      {
        cause: thrown,
      },
    );
  }
}
