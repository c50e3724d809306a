import { resolve } from 'node:path';
import type { Command } from 'commander';
import { authorityDirectory, requireNoAuthority } from '../../engine/trust/authority-files.js';
import { authorityWords } from '../../engine/trust/authority-words.js';
import { backupCluster, restoreCluster } from '../../engine/trust/cluster-backup.js';
import { createCluster } from '../../engine/trust/create-cluster.js';
import { whileHeld } from '../../engine/trust/main-lock.js';
import { stateDirectory } from '../../shared/base/files/state-directory.js';
import { printableJson } from '../../shared/base/text/printable-text.js';
import { standardOutput } from '../../shared/base/text/text-output.js';
import { authorityDigest } from '../../shared/transport/trust/certificate.js';
import {
  addClusterFlags,
  authorityOfFlags,
  clusterOfFlags,
  type ClusterFlags,
  newAuthorityOfFlags,
} from '../client/cluster-of-flags.js';
import { runtime } from '../client/process-runtime.js';

interface FileFlags extends ClusterFlags {
  json: boolean;
}

/** `odmoe cluster`: the authority of a cluster, as files of main's host. */
export function registerClusterCommand(program: Command): void {
  const cluster = program
    .command('cluster')
    .description("a cluster's authority, which says who is in it: make it, back it up, restore it");
  registerInit(cluster);
  registerBackup(cluster);
  registerRestore(cluster);
}

function withFileFlags(command: Command, otherwise?: string): Command {
  return addClusterFlags(command, otherwise).option('--json', 'print one JSON object and nothing else', false);
}

function registerInit(cluster: Command): void {
  withFileFlags(cluster.command('init').description("make the cluster's authority, on main's host"))
    .addHelpText(
      'after',
      `
From then on main and every machine that has joined speak TLS with one another, and with nobody else. odmoe main --lan and
odmoe up --lan do the same at their first start.

Examples:
  odmoe cluster init
  odmoe cluster init --cluster home`,
    )
    .action(async (flags: FileFlags) => {
      const name = await newAuthorityOfFlags(flags);
      const path = stateDirectory(name);
      await requireNoAuthority(path);
      const { directory, words } = await whileHeld(path, () => createCluster(path, name));
      print(flags, { cluster: name, directory, words }, [
        `Cluster "${name}" has an authority now: ${directory} (back it up; who has it owns the cluster).`,
        `Words: ${words}`,
        '',
        'Next:',
        '  on this host           start main anew: from then on it speaks TLS, with certificates of this cluster only',
        '  on each other machine  start its daemons anew; each shows a code once, and here you say odmoe accept CODE',
        '  for a lost disk        odmoe cluster backup FILE, and keep the file elsewhere',
      ]);
    });
}

function registerBackup(cluster: Command): void {
  const command = cluster
    .command('backup')
    .description('write the authority, the list of machines and the tokens into one file')
    .argument('<file>', 'a new file');
  withFileFlags(command, 'the only one with an authority here')
    .addHelpText(
      'after',
      `
Only this user can read the file, and who has it owns the cluster: keep it on another disk, under lock and key. Main may run meanwhile.

Example:
  odmoe cluster backup /media/stick/home.backup`,
    )
    .action(async (file: string, flags: FileFlags) => {
      const name = await authorityOfFlags(flags);
      const path = resolve(file);
      await backupCluster(stateDirectory(name), name, path);
      print(flags, { cluster: name, file: path }, [
        `The authority, the machines and the tokens of "${name}" are in ${path}. Who has it owns the cluster: keep it elsewhere, and safe.`,
      ]);
    });
}

function registerRestore(cluster: Command): void {
  const command = cluster
    .command('restore')
    .description("put a backup in the place of main's lost files")
    .argument('<file>', 'what odmoe cluster backup wrote');
  withFileFlags(command)
    .addHelpText(
      'after',
      `
It is refused where the cluster has an authority already. Machines that were in the cluster go on without joining again. Machines that
joined or were removed after the backup are not known to it: look at odmoe node list, and remove again whom you had removed. Join tokens
are not restored, as some may have been revoked or used up after the backup.

Example:
  odmoe cluster restore /media/stick/home.backup --cluster home`,
    )
    .action(async (file: string, flags: FileFlags) => {
      const name = clusterOfFlags(flags);
      const path = stateDirectory(name);
      await requireNoAuthority(path);
      const nowMs = runtime.wallMs();
      const { authority, roster } = await whileHeld(path, () => restoreCluster(path, name, resolve(file), nowMs));
      const words = authorityWords(authorityDigest(authority.certificate));
      const machines = roster.entries.filter(({ role, removed }) => role !== 'main' && removed === undefined).length;
      const directory = authorityDirectory(path);
      print(flags, { cluster: name, directory, words, machines }, [
        `The authority of "${name}" is restored: ${directory}, with ${machines === 1 ? '1 machine' : `${machines} machines`} beside main.`,
        `Words: ${words}`,
        'Start main here. The machines go on without a code; odmoe node list shows them.',
        'No join token of before is good any more: odmoe token create makes new ones.',
      ]);
    });
}

function print({ json }: FileFlags, object: object, lines: readonly string[]): void {
  standardOutput.write(`${json ? printableJson(object) : lines.join('\n')}\n`);
}
