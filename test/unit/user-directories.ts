import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const VARIABLES = { state: 'XDG_STATE_HOME', config: 'XDG_CONFIG_HOME' } as const;

/** The directories of a user, in an empty directory of their own. This process uses them until `remove`. */
export class UserDirectories {
  private readonly root = mkdtempSync(join(tmpdir(), 'odmoe-'));
  private readonly workingDirectory = process.cwd();
  private readonly before = Object.entries(VARIABLES).map(([, name]) => [name, process.env[name]] as const);

  constructor() {
    for (const [name, variable] of Object.entries(VARIABLES)) process.env[variable] = join(this.root, name);
    // Commands read the cluster.yaml of the working directory.
    process.chdir(this.root);
  }

  /** A path in the directory. */
  path(name: string): string {
    return join(this.root, name);
  }

  /** From now on the process is that of another user, or on another host. */
  moveTo(user: string): void {
    for (const [name, variable] of Object.entries(VARIABLES)) process.env[variable] = join(this.root, user, name);
  }

  remove(): void {
    for (const [name, value] of this.before) {
      if (value === undefined) Reflect.deleteProperty(process.env, name);
      else process.env[name] = value;
    }
    process.chdir(this.workingDirectory);
    rmSync(this.root, { recursive: true, force: true });
  }
}
