import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Command } from 'commander';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { packageRoot } from '../../shared/base/files/package-root.js';

interface SetupFlags {
  cuda: boolean;
  force: boolean;
}

/** `odmoe setup`: builds the native library on this machine, or gets the CUDA library. */
export function registerSetupCommand(program: Command): void {
  program
    .command('setup')
    .description(
      'build the native library on this machine, where no package of it fits; with --cuda get the CUDA library',
    )
    .option('--cuda', 'the CUDA library: as a package where npm has it, else built by the nvcc of this machine', false)
    .option('--force', 'build the native library here although one is there that works', false)
    .addHelpText(
      'after',
      `
It does nothing where the native library works. Otherwise it installs a C++ compiler and libraries through apt where it may, and otherwise says what to install.

Examples:
  odmoe setup           after "no package fits this machine"
  odmoe setup --cuda    on a machine with an NVIDIA GPU; on a Jetson, with JetPack's CUDA toolkit`,
    )
    .action(async (flags: SetupFlags) => setUp(flags));
}

/** The script that sets odmoe up. `root`: the directory of odmoe. @throws INSTALLATION_INCOMPLETE a container's image leaves it out */
export function setupScript(root: string): string {
  const script = join(root, 'scripts', 'setup.mjs');
  if (existsSync(script)) return script;
  throw new OdmoeError(
    'INSTALLATION_INCOMPLETE',
    `${root} is the odmoe of a container's image, which is built whole: for CUDA build the image with --build-arg ODMOE_CUDA=on (docs/containers.md)`,
  );
}

/** The script runs by plain Node, because it also makes what this process is made of. @throws INSTALLATION_INCOMPLETE where it fails */
async function setUp({ cuda, force }: SetupFlags): Promise<void> {
  const script = setupScript(packageRoot());
  const child = spawn(process.execPath, [script, ...(cuda ? ['--cuda'] : []), ...(force ? ['--force'] : [])], {
    stdio: 'inherit',
  });
  const [status] = (await once(child, 'close')) as [number | null];
  if (status === 0) return;
  throw new OdmoeError(
    'INSTALLATION_INCOMPLETE',
    'the set-up has failed for the reason above; mend it and run `odmoe setup` again',
  );
}
