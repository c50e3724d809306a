import type { Command } from 'commander';
import { ChatSession, type ChatOptions } from '../chat/chat-session.js';
import type { TerminalChatSettings } from '../chat/chat-settings.js';
import { EMPTY_TERMINAL_CONVERSATION } from '../chat/conversation.js';
import { historyPath, LineHistory } from '../chat/line-history.js';
import { PipedInput } from '../chat/line-input.js';
import { TerminalInput } from '../chat/terminal-input.js';
import { addMainFlags, findMain, type MainFlags } from '../client/find-main.js';
import { addAnswerLengthFlag, addTemplateFlag } from '../client/generation-flags.js';
import { withInterrupt } from '../client/interrupt.js';
import {
  addLocalEngineFlags,
  LOCAL_ENGINE_FLAGS,
  openLocalEngine,
  type LocalEngineFlags,
} from '../client/local-engine-flags.js';
import { addSamplingFlags, samplingOfFlags, type SamplingFlags } from '../client/sampling-flags.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { TemplateArgument } from '../../shared/wire/messages.js';
import { MARKS, standardError, standardOutput } from '../../shared/base/text/text-output.js';
import { generate, identifyPeer } from '../../shared/transport/node-clients.js';

interface ChatFlags extends MainFlags, SamplingFlags, LocalEngineFlags {
  maxTokens?: number;
  templateArg: TemplateArgument[];
  system?: string;
  load?: string;
  history: boolean;
}

/** Time in which main must identify itself. */
const IDENTIFY_TIMEOUT_MS = 15_000;

/** `odmoe chat`: a conversation, with a cluster or with a model in this process. */
export function registerChatCommand(program: Command): void {
  const command = program
    .command('chat')
    .description('talk with a running cluster, or with a model in this process')
    .argument('[model]', 'a pack or a checkpoint directory, to be loaded into this process');
  addTemplateFlag(addSamplingFlags(addAnswerLengthFlag(addMainFlags(command))));
  addLocalEngineFlags(command)
    .option('--system <text>', 'what the model is told before the conversation')
    .option('--load <file>', 'go on with a conversation that /save wrote')
    .option('--no-history', 'neither read nor keep the lines that are typed')
    .addHelpText(
      'after',
      `
Without a model directory the cluster is asked, which is found by mDNS where --main is not given.
/help in the conversation lists its commands. Ctrl-C stops an answer; what came of it stays in the conversation. Ctrl-D ends.
What is typed is kept for the up key, in a file that only you can read ($XDG_STATE_HOME/odmoe/chat-history).
Where standard input is no terminal, each line of it is a message or a command, and only the answers are printed; the first failure
ends the conversation.
Examples:
  odmoe chat
  odmoe chat --main 192.168.1.10:7600 --temperature 0.7 --system "Answer in one sentence."
  odmoe chat models/demo
  odmoe chat --load fox.jsonl
  printf '%s\\n' "What is 17 plus 25?" "And 8 more?" | odmoe chat models/demo`,
    )
    .action(async (model: string | undefined, flags: ChatFlags) => chat(model, flags, command));
}

async function chat(model: string | undefined, flags: ChatFlags, command: Command): Promise<void> {
  if (model !== undefined) {
    if (flags.main !== undefined) throw new OdmoeError('USAGE', 'give a model directory or --main; both were given');
    const engine = await openLocalEngine(model, flags, { emulation: null, shadow: null });
    try {
      await converse(flags, `${engine.source.name} in this process`, (request, signal) =>
        engine.generate(request, signal),
      );
    } finally {
      engine.dispose();
    }
    return;
  }
  const meaningless = LOCAL_ENGINE_FLAGS.find((flag) => command.getOptionValueSource(flag) === 'cli');
  if (meaningless !== undefined) {
    throw new OdmoeError('USAGE', `--${meaningless} is for a model in this process: give its directory too`);
  }
  const { address, transport } = await findMain(flags);
  const { modelName, cluster } = await identifyPeer(transport, address, IDENTIFY_TIMEOUT_MS);
  await converse(flags, `${modelName} on cluster ${cluster} (${address})`, (request, signal) =>
    generate(transport, address, request, signal),
  );
}

async function converse(flags: ChatFlags, partner: string, generate: ChatOptions['generate']): Promise<void> {
  const { stdin } = process;
  // Prompts are no part of an answer, so they go to the terminal that the person sees.
  const screen = [standardOutput, standardError].find(({ isTerminal }) => isTerminal);
  const terminal = stdin.isTTY && screen !== undefined ? screen.keyboardEcho : null;
  const note = (text: string): void => standardError.write(MARKS.dim, text, MARKS.notDim, '\n');
  const history = terminal !== null && flags.history ? new LineHistory(historyPath(), note) : null;
  const lines =
    terminal === null ? new PipedInput(stdin) : new TerminalInput(stdin, terminal, (await history?.read()) ?? []);
  const settings: TerminalChatSettings = { sampling: samplingOfFlags(flags), maxTokens: flags.maxTokens ?? null };
  const session = new ChatSession(EMPTY_TERMINAL_CONVERSATION, settings, {
    lines,
    generate,
    note,
    interruptible: withInterrupt,
    isInteractive: terminal !== null,
    answer: (text) => standardOutput.writeAnswer(text),
    typed: async (typed) => history?.add(typed),
    templateArguments: flags.templateArg,
  });
  try {
    if (terminal !== null) note(`${partner}.\n/help lists the commands, Ctrl-D ends.`);
    if (flags.load !== undefined) await session.load(flags.load);
    if (flags.system !== undefined) session.system(flags.system);
    await session.run();
  } finally {
    lines.close();
  }
}
