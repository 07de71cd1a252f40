# fish completion for graphc: verbs and options as graphc's own help lists them.

set -g __graphc_verbs run bench explain inspect verify grad train finetune merge tune doctor

function __graphc_verb
    set -l words (commandline -opc)
    set -q words[2]; and contains -- $words[2] $__graphc_verbs; and echo $words[2]
    or echo compile
end

function __graphc_options
    graphc help (__graphc_verb) 2>/dev/null | string replace -rf '^  (?:(-.), )?(--[a-z0-9-]+)\\S*(?: \\S+)* {2,}(.*)$' '$2\t$3'
end

complete -c graphc -n 'test (count (commandline -opc)) -eq 1' -a 'compile $__graphc_verbs help version'
complete -c graphc -n 'test "$(commandline -opc | string join \x20)" = "graphc help"' -f -a 'compile $__graphc_verbs'
complete -c graphc -n 'string match -q -- "-*" (commandline -ct)' -f -a '(__graphc_options)'
complete -c graphc -l device -x -a 'cpu cuda'
complete -c graphc -l target -x -a '(graphc --version 2>/dev/null | string replace -rf "^targets " "" | string split " ")'
complete -c graphc -l precision -x -a 'f32 tf32 bf16 f16'
