import { dirname, join } from 'node:path';
import { stateHome } from '../../shared/base/files/state-directory.js';
import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { fileExists, readBoundedFile, type FileErrors } from '../../shared/base/files/read-file.js';
import { makeDirectories } from '../../shared/base/files/make-directories.js';
import { replaceFile } from '../../shared/base/files/replace-file.js';
import { writeFailure } from '../../shared/base/files/storage-error.js';

/** Most lines in the history, and most characters of one line. A longer line is not stored. */
export const HISTORY_LINES_LIMIT = 1000;
export const HISTORY_LINE_LENGTH_LIMIT = 4096;
/** Most bytes of these lines in UTF-8. */
const LARGEST_FILE_BYTES = HISTORY_LINES_LIMIT * (3 * HISTORY_LINE_LENGTH_LIMIT + 1);

const FILE_ERRORS: FileErrors = { missing: 'STORAGE_FAILED', invalid: 'STORAGE_FAILED', remedy: 'remove the file' };

/** The file with the lines that were typed into `odmoe chat`. */
export function historyPath(home: string = stateHome()): string {
  return join(home, 'odmoe', 'chat-history');
}

/** The lines to store, the oldest first, without empty lines and without repeats of the line before. */
export function mergeHistory(saved: readonly string[], typed: readonly string[]): string[] {
  return [...saved, ...typed]
    .filter((line) => line.trim() !== '' && line.length <= HISTORY_LINE_LENGTH_LIMIT)
    .filter((line, index, lines) => line !== lines[index - 1])
    .slice(-HISTORY_LINES_LIMIT);
}

/** Stores the lines of this and earlier conversations, in a file that only its user can read. Failures are reported, not thrown. */
export class LineHistory {
  private isBroken = false;

  constructor(
    private readonly path: string,
    private readonly onProblem: (message: string) => void,
  ) {}

  /** Returns the oldest line first. */
  async read(): Promise<string[]> {
    try {
      return await this.readFile();
    } catch (thrown) {
      this.tell('the lines of before cannot be read', thrown);
      return [];
    }
  }

  /** Adds lines to the present content of the file, because another conversation may have added lines. */
  async add(typed: readonly string[]): Promise<void> {
    try {
      const lines = mergeHistory(await this.readFile(), typed);
      await this.makeDirectory();
      await replaceFile(this.path, lines.map((line) => `${line}\n`).join(''), 0o600);
    } catch (thrown) {
      this.tell('what is typed cannot be kept', thrown);
    }
  }

  /** Reports only the first problem, because the same one would occur at each message. */
  private tell(what: string, thrown: unknown): void {
    if (!this.isBroken) this.onProblem(`${what}: ${toOdmoeError(thrown).message}`);
    this.isBroken = true;
  }

  private async makeDirectory(): Promise<void> {
    try {
      await makeDirectories(dirname(this.path), 0o700);
    } catch (thrown) {
      throw writeFailure(thrown, this.path, null);
    }
  }

  private async readFile(): Promise<string[]> {
    if (!(await fileExists(this.path))) return [];
    const bytes = await readBoundedFile(this.path, LARGEST_FILE_BYTES, FILE_ERRORS);
    return mergeHistory(bytes.toString('utf8').split('\n'), []);
  }
}
