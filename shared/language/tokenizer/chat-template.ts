import { z } from 'zod';
import { OdmoeError } from '../../base/errors/odmoe-error.js';
import type { ChatMessage } from '../../wire/messages.js';
import { RecentMap } from '../../base/runtime/recent-map.js';
import type { ChatContext } from './tokenizer.js';
import { ConversationShaper } from './conversation-shape.js';
import { BoundedTemplate } from '../jinja/bounded-template.js';
import { TemplateBudget, TemplateLimitError, type TemplateLimits } from '../jinja/template-budget.js';
import { TemplateForms } from './template-forms.js';

export interface ChatTemplate {
  /** Text of the template. */
  readonly source: string;
  /**
   * Throws REQUEST_INVALID if the template refuses the messages (roles out of turn and the like), TOKENIZER_INVALID if the template does not end
   * within its limits.
   */
  render(messages: readonly ChatMessage[], context: ChatContext): string;
}

const namedTemplateSchema = z.looseObject({ name: z.string(), template: z.string() });
const chatTemplateSchema = z.union([z.string(), z.array(namedTemplateSchema), z.record(z.string(), z.string())]);
const tokenSchema = z.union([z.string(), z.looseObject({ content: z.string() })]);
const configSchema = z.looseObject({ chat_template: chatTemplateSchema.nullish() });

/**
 * Most steps of a rendering: a base, and more for each message. Templates take a few hundred steps for a message; a template that loops for ever
 * would block all prompts behind it. Steps are counted, not time: the load of the machine must not decide whether a template ends.
 */
const RENDER_STEPS = 300_000;
const RENDER_STEPS_PER_MESSAGE = 2000;
/** Further steps for the characters of tools and other variables, through which templates loop; at most MOST_STEPS_OF_VALUES in all. */
const RENDER_STEPS_PER_CHARACTER = 1;
const MOST_STEPS_OF_VALUES = 1_000_000;
/**
 * Budget of all trial renderings together, as a multiple of the limits of one rendering. The trials find out how a template treats a
 * conversation.
 */
const TRIALS_SHARE = 4;
/**
 * Most work of a rendering (TemplateLimits.work): a base, and more for each message and each character of the input. A template that doubles
 * texts or lists would fill the memory in few steps. Its values take at most a few bytes for each unit of work.
 */
const RENDER_WORK = 16 * 1024 * 1024;
const RENDER_WORK_PER_MESSAGE = 64 * 1024;
const RENDER_WORK_PER_CHARACTER = 16;
/** Most settings whose message forms are remembered. */
const SETTINGS_LIMIT = 64;
/** Most characters of a template's own error message that are shown. */
const REASON_LENGTH_LIMIT = 1000;

/** Marks the end of a message that the answer continues, and so the place where the prompt is cut. Some templates know it from transformers. */
const CONTINUE_MARK = 'CONTINUE_FINAL_MESSAGE_TAG ';

/** Variables of tokenizer_config.json that templates name. */
const TOKEN_VARIABLES = ['bos_token', 'eos_token', 'unk_token', 'pad_token', 'sep_token', 'cls_token', 'mask_token'];

/**
 * The model's chat template: the text of chat_template.jinja if there is one, else chat_template of tokenizer_config.json (a string, or named
 * templates of which "default" is used). Null if the model has none.
 */
export function chatTemplateFrom(config: object, templateText: string | null, directory: string): ChatTemplate | null {
  const parsed = configSchema.safeParse(config);
  if (!parsed.success) {
    throw new OdmoeError(
      'TOKENIZER_INVALID',
      `${directory}/tokenizer_config.json: chat_template is neither a text nor a list of named texts; correct or remove it`,
    );
  }
  const source = templateText ?? defaultTemplate(parsed.data.chat_template ?? null);
  if (source === null) return null;
  const template = parseTemplate(source, directory);
  const tokens = tokenVariables(parsed.data);
  const renderer = new TemplateRenderer(template, source, tokens, directory);
  return { source, render: (messages, context) => renderer.render(messages, context) };
}

/** A template with everything that its application needs. */
class TemplateRenderer {
  /** Message forms, by the settings that influence the template's treatment of messages. */
  private readonly forms = new RecentMap<string, TemplateForms>(SETTINGS_LIMIT);
  private readonly shaper = new ConversationShaper();

  constructor(
    private readonly template: BoundedTemplate,
    private readonly source: string,
    private readonly tokens: Readonly<Record<string, string>>,
    private readonly directory: string,
  ) {}

  render(given: readonly ChatMessage[], context: ChatContext): string {
    const messages = this.shaped(given, context);
    if (context.continueLast !== true) return this.apply(messages, context, true);
    const [last, lastShaped] = [given.at(-1), messages.at(-1)];
    if (last === undefined || lastShaped === undefined) throw notContinued('there is no message');
    const marked = [...messages.slice(0, -1), { ...lastShaped, content: lastShaped.content + CONTINUE_MARK }];
    const rendered = this.apply(marked, context, false);
    const end = rendered.lastIndexOf(CONTINUE_MARK.trimEnd());
    if (end < 0) throw notContinued('the template leaves out its end');
    const prompt = rendered.slice(0, end);
    if (!prompt.endsWith(last.content.trimStart())) throw notContinued('the template changes its text');
    return prompt;
  }

  /** The messages in a shape in which the template loses no word and does not refuse them, if there is such a shape. */
  private shaped(messages: readonly ChatMessage[], context: ChatContext): readonly ChatMessage[] {
    const generation = context.continueLast !== true;
    const probe: ChatContext = { ...context, wallMs: 0 };
    const { steps, work } = limitsFor(messages, context.values);
    // All trials share one budget: a slow template takes only a few times as long with them.
    const budget = new TemplateBudget({ steps: steps * TRIALS_SHARE, work: work * TRIALS_SHARE });
    return this.shaper.shaped(messages, settingOf(context), (shown) => this.apply(shown, probe, generation, budget));
  }

  private apply(
    messages: readonly ChatMessage[],
    context: ChatContext,
    generation: boolean,
    budget = new TemplateBudget(limitsFor(messages, context.values)),
  ): string {
    const { values, wallMs } = context;
    const variables = { tools: null, documents: null, ...this.tokens, ...values };
    const render = (shown: readonly object[]): string =>
      this.template.render({ ...variables, messages: shown, add_generation_prompt: generation }, budget, wallMs);
    try {
      const forms = this.forms.of(settingOf(context), () => new TemplateForms(this.source));
      return render(forms.shaped(messages, render));
    } catch (thrown) {
      if (thrown instanceof TemplateLimitError) throw endless(this.directory, thrown.message, messages.length);
      const reason = thrown instanceof Error ? thrown.message : String(thrown);
      const shown = reason.slice(0, REASON_LENGTH_LIMIT);
      throw new OdmoeError('REQUEST_INVALID', `the model's chat template does not take these messages: ${shown}`, {
        cause: thrown,
      });
    }
  }
}

/** Everything except the messages that may change the template's treatment of them: its variables, but not the lengths of long texts. */
function settingOf({ values, continueLast = false }: ChatContext): string {
  const shown = Object.entries(values).map(([name, value]) => {
    const isSmall = typeof value === 'boolean' || value === null || (typeof value === 'string' && value.length < 32);
    return [name, isSmall ? value : typeof value];
  });
  return JSON.stringify([continueLast, shown]);
}

function limitsFor(messages: readonly ChatMessage[], values: Readonly<Record<string, unknown>>): TemplateLimits {
  return {
    steps:
      RENDER_STEPS +
      messages.length * RENDER_STEPS_PER_MESSAGE +
      Math.min(charactersOf(values) * RENDER_STEPS_PER_CHARACTER, MOST_STEPS_OF_VALUES),
    work:
      RENDER_WORK +
      messages.length * RENDER_WORK_PER_MESSAGE +
      (charactersOf(messages) + charactersOf(values)) * RENDER_WORK_PER_CHARACTER,
  };
}

/** Characters of all texts in a value; any other value counts as one. */
function charactersOf(value: unknown): number {
  if (typeof value === 'string') return value.length + 1;
  if (typeof value !== 'object' || value === null) return 1;
  if (value instanceof Map) return charactersOf([...(value as Map<unknown, unknown>)]);
  const items: unknown[] = Array.isArray(value) ? value : Object.values(value);
  return items.reduce((sum: number, item) => sum + charactersOf(item), 1);
}

function notContinued(reason: string): OdmoeError {
  return new OdmoeError(
    'REQUEST_INVALID',
    `the answer cannot go on with the last message: ${reason}; ask for a new answer instead`,
    { field: 'messages' },
  );
}

function endless(directory: string, limit: string, messages: number): OdmoeError {
  return new OdmoeError(
    'TOKENIZER_INVALID',
    `the chat template of ${directory} had not ended after ${limit}, for ${messages} messages; correct it, or send ` +
      'plain text (--raw)',
  );
}

function defaultTemplate(chatTemplate: z.infer<typeof chatTemplateSchema> | null): string | null {
  if (chatTemplate === null || typeof chatTemplate === 'string') return chatTemplate;
  if (!Array.isArray(chatTemplate)) return chatTemplate['default'] ?? null;
  return chatTemplate.find((named) => named.name === 'default')?.template ?? null;
}

function parseTemplate(source: string, directory: string): BoundedTemplate {
  try {
    return new BoundedTemplate(source);
  } catch (thrown) {
    const reason = thrown instanceof Error ? thrown.message : String(thrown);
    throw new OdmoeError(
      'TOKENIZER_INVALID',
      `the chat template of ${directory} cannot be parsed (${reason}); correct it, or remove it and send plain text`,
      { cause: thrown },
    );
  }
}

function tokenVariables(config: Record<string, unknown>): Record<string, string> {
  const variables: Record<string, string> = {};
  for (const name of TOKEN_VARIABLES) {
    const token = tokenSchema.safeParse(config[name]);
    if (token.success) variables[name] = typeof token.data === 'string' ? token.data : token.data.content;
  }
  return variables;
}
